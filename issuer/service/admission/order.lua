-- What an operator says of an identity: quarantined, or released from what signals do. One step, as `admit.lua`'s, whose
-- writing of a standing this is; the store's clock is that script's.
--
-- KEYS     1 the identity   2 ... its buckets, which a release frees, too
-- ARGV     1 'quarantine' or 'release'   2 for how many microseconds

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local ends, released = now + tonumber(ARGV[2]), ARGV[1] == 'release'
local identity, left_ms = KEYS[1], math.ceil(tonumber(ARGV[2]) / 1000)

local function digits(number)
  return string.format('%.0f', number)
end

local standing
if released then
  standing = {'0', '-', '0', '0', digits(ends)}
else
  standing = {digits(ends), 'operator', '0', '0', '0'}
end

-- What is of a foreign kind or form is written anew: else nobody could be admitted until it ends.
local kind = redis.call('TYPE', identity).ok
if kind ~= 'hash' and kind ~= 'none' then
  redis.call('DEL', identity)
elseif redis.call('HSTRLEN', identity, 'state') < 18 then
  redis.call('HDEL', identity, 'state')
end
if released then
  redis.call('HDEL', identity, 'refusals')
  for number = 2, #KEYS do redis.call('DEL', KEYS[number]) end
end
redis.call('HSET', identity, 'standing', table.concat(standing, ' '))
if redis.call('PTTL', identity) < left_ms then redis.call('PEXPIRE', identity, left_ms) end
return ends
