-- The hosts that share this store: one row for each, with the digest of the keys that it publishes and the time of its
-- last call. One call writes a row and compares all. It uses the store's clock, because the clocks of hosts may differ.
--
-- KEYS     1 the table: a hash, from a host's id to '<time> <digest>', and from 'since' to '<time> <run id>'
-- ARGV     1 the host   2 the digest of its published keys   3 the life of a row, in seconds
--          4 '1' if the operator states that the store forgets nothing
--          5 the time in seconds, or '' for the store's clock
--
-- Answers {hosts, agreeing, age}: the number of hosts, how many of them publish the same digest, and for how many
-- seconds the table has recorded every living host.

local hosts, host, digest, life = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local now = tonumber(ARGV[5] ~= '' and ARGV[5] or redis.call('TIME')[1])

-- A store that was restored from a snapshot, or a promoted replica, may lack the row of a living host. Its run id has
-- changed then, as for the epoch of admit.lua. If nobody writes for the life of a row, the whole table expires.
local run = '-'
if ARGV[4] ~= '1' then
  local info = redis.call('INFO', 'server')
  local _, last = string.find(info, 'run_id:', 1, true)
  run = string.sub(info, last + 1, last + 40)
end
local since, bound_to = string.match(redis.call('HGET', hosts, 'since') or '', '^(%d+) (%S+)$')
since = tonumber(since)
if not since or bound_to ~= run or since > now then
  since = now
  redis.call('DEL', hosts)
  redis.call('HSET', hosts, 'since', string.format('%.0f %s', now, run))
end

redis.call('HSET', hosts, host, string.format('%.0f %s', now, digest))
redis.call('EXPIRE', hosts, life)

local count, agreeing, rows = 0, 0, redis.call('HGETALL', hosts)
for at = 1, #rows, 2 do
  local seen, published = string.match(rows[at + 1], '^(%d+) (%S*)$')
  if rows[at] == 'since' then -- not a host
  elseif not seen or now - tonumber(seen) > life then
    redis.call('HDEL', hosts, rows[at])
  else
    count = count + 1
    if published == digest then agreeing = agreeing + 1 end
  end
end
return {count, agreeing, now - since}
