-- One row for each host that shares this store: what it publishes, and when it last said so. All of it in one step, and
-- by the store's own clock: those of the hosts may differ.
--
-- KEYS     1 the table: a hash, from a host's id to '<time> <digest>', and from 'since' to '<time> <run id>'
-- ARGV     1 the host   2 the digest of what it publishes   3 the life of a row, in seconds
--          4 '1' where the store is said to forget nothing   5 the time in seconds, or '' for the store's clock
--
-- Answers {hosts, agreeing, age}: how many hosts there are, how many of them publish this, and for how many seconds the
-- table has remembered every host that lives.

local hosts, host, digest, life = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local now = tonumber(ARGV[5] ~= '' and ARGV[5] or redis.call('TIME')[1])

-- A store that came back from a snapshot, or a replica that was promoted, may lack a host that lives: as for the epoch of
-- admit.lua its run id tells. A table that nobody has written to for the life of a row is forgotten as a whole.
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
  if rows[at] == 'since' then -- no host
  elseif not seen or now - tonumber(seen) > life then
    redis.call('HDEL', hosts, rows[at])
  else
    count = count + 1
    if published == digest then agreeing = agreeing + 1 end
  end
end
return {count, agreeing, now - since}
