-- What an operator says of an identity: quarantined, or released from what signals do. One step, as `admit.lua`'s, whose
-- writing of a standing this is; the store's clock is that script's.
--
-- KEYS     1 standing of the identity   2 its refusals   3 ... those of its buckets, which a release frees, too
-- ARGV     1 'quarantine' or 'release'   2 for how many microseconds

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local ends, released = now + tonumber(ARGV[2]), ARGV[1] == 'release'

local function digits(number)
  return string.format('%.0f', number)
end

local standing
if released then
  standing = {'0', '-', '0', '0', digits(ends)}
  for number = 2, #KEYS do redis.call('DEL', KEYS[number]) end
else
  standing = {digits(ends), 'operator', '0', '0', '0'}
end
redis.call('SET', KEYS[1], table.concat(standing, ' '), 'PX', digits(math.ceil((ends - now) / 1000)))
return ends
