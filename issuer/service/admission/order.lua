-- An operator's order about an identity: a quarantine, or a release from the effects of signals. It is one atomic step
-- like `admit.lua`, uses the store's clock like that script, and writes a standing in the same form.
--
-- KEYS     1 the identity   2 ... its buckets, which a release frees, too
-- ARGV     1 'quarantine' or 'release'   2 the duration in microseconds

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

-- A key of another type or a malformed state is dropped. Otherwise every request of the identity would fail until the
-- key expires.
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
