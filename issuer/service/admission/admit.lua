-- THE admission: limits, quarantine, epoch and uses, in one atomic step (contract section 5).
--
-- One script, because a decision spread over several commands is a race: two workers would both read "unused" and both
-- issue. Nothing here is ever undone; what is refused late has been paid for.
--
-- KEYS     1 identity rate   2 integration rate   3 refusals rate   4 quarantine   5 epoch
--          6 use record (with a use only)
-- ARGV     1 `ScriptArgument` of redis.py, by its names, as MessagePack: one argument in place of twenty, whose
--          encoding cost the caller more than the rest of the call
--          2 the candidate template (cmsgpack does not read raw bytes)
--
-- Answers {ticket, verdict, ...}. The ticket comes back so that an answer can never be taken for another call's.

local call = cmsgpack.unpack(ARGV[1])
local ticket, use, candidate = call.ticket, call.use, ARGV[2]

local now = call.now_us
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local now_s = math.floor(now / 1000000)

-- Microseconds since 1970 fit a double exactly (2^53 is the year 2255), but tostring() would write them as 1.8e+15.
local function digits(number)
  return string.format('%.0f', number)
end

-- (1) The epoch: since when this store remembers every use. It goes first, so that even a refused request notices a
-- loss. The server's own run_id tells a restart from a snapshot and a promoted replica, and only INFO on the very
-- server that runs this script tells it truly, whatever the connection went through: 4 to 7 us, measured on Valkey 9.1.
local function run_id()
  if call.durable_store then return '-' end
  local info = redis.call('INFO', 'server')
  local _, last = string.find(info, 'run_id:', 1, true) -- plain: the pattern (%x+) costs 6 us more
  return string.sub(info, last + 1, last + 40)
end

local run = run_id()
local epoch, bound_to = string.match(redis.call('GET', KEYS[5]) or '', '^(%d+) (%S+)$')
epoch = tonumber(epoch)
if not epoch or (bound_to ~= run and not call.durable_store) then
  -- The second that is under way may hold uses that were forgotten: the epoch is the next one.
  epoch = now_s + 1
  redis.call('SET', KEYS[5], digits(epoch) .. ' ' .. run)
end

-- (2) Quarantine. An operator who shortens it frees at once those who wait.
local ends = tonumber(redis.call('GET', KEYS[4]) or '0')
if ends > now then
  local left = math.min(ends - now, call.quarantine_us)
  return {ticket, 'QUARANTINED', now + left, left}
end

-- (3) Rates. The arithmetic of limits.spend: GCRA, one theoretical arrival time a key.
local function charge(key, increment, tolerance)
  local arrival = math.max(tonumber(redis.call('GET', key) or '0'), now) + increment
  return arrival, arrival - now - tolerance
end

-- An arrival time in the past says nothing, so the key may go when it has passed.
local function keep(key, arrival)
  redis.call('SET', key, digits(arrival), 'PX', digits(math.max(1, math.ceil((arrival - now) / 1000))))
end

-- Both are tried before either is stored: a full integration must not eat the identity's share, nor the other way.
local identity_arrival, identity_wait = charge(KEYS[1], call.identity_us, call.identity_tolerance_us)
local integration_arrival, integration_wait = charge(KEYS[2], call.integration_us, call.integration_tolerance_us)
if identity_wait > 0 and identity_wait >= integration_wait then return {ticket, 'RATE_IDENTITY', identity_wait} end
if integration_wait > 0 then return {ticket, 'RATE_INTEGRATION', integration_wait} end
keep(KEYS[1], identity_arrival)
keep(KEYS[2], integration_arrival)

-- (4) A refused request claims no use. Too many of them, and the identity is quarantined; the end is also the value,
-- because a passed-in clock does not move the store's expiry. A grant that was only explained claims none either.
if not use then
  if not call.refused then return {ticket, 'COUNTED'} end
  local arrival, wait = charge(KEYS[3], call.refusals_us, call.refusals_tolerance_us)
  if wait > 0 then
    redis.call('SET', KEYS[4], digits(now + call.quarantine_us), 'PX', digits(call.quarantine_us / 1000))
  else
    keep(KEYS[3], arrival)
  end
  return {ticket, 'COUNTED'}
end

-- (5) Was this identity token issued since the store remembers? If not, its use may have been forgotten. A nonce has no
-- such time: who presents one could have presented another.
local remembered_from = epoch + call.leeway_s
if use.issued_at and use.issued_at < remembered_from then return {ticket, 'RESET', remembered_from} end

-- (6) The use record must outlive the identity token, and a nonce its day. If this clock says that it is over already,
-- the record would vanish as it is written, and the next request with this token would be "new": the clocks disagree,
-- nobody decides.
local left_ms = use.keep_until * 1000 - math.floor(now / 1000)
if left_ms <= 0 then return {ticket, 'LATE'} end

local function outlive(record)
  if redis.call('PTTL', record) < left_ms then redis.call('PEXPIRE', record, digits(left_ms)) end -- raise, never lower
end

-- (7) The use. A template that came before is given again while it is good: that costs nothing, and the same request
-- becomes the same token. Anything else costs one use.
local function usable(kid)
  for _, usable_kid in ipairs(use.usable_kids) do
    if usable_kid == kid then return true end
  end
  return false
end

local record, slot = KEYS[6], 'd:' .. use.request_digest
local before = redis.call('HGET', record, slot)
if before then
  local expires, kid, template = string.match(before, '^(%d+) (%S+) (.*)$')
  if tonumber(expires) > now_s and usable(kid) then
    outlive(record)
    return {ticket, 'SAME', template}
  end
end

local used = tonumber(redis.call('HGET', record, 'n') or '0')
if used >= use.allowed then
  outlive(record)
  return {ticket, 'EXHAUSTED'}
end
redis.call('HSET', record, 'n', digits(used + 1), slot, digits(use.template_exp) .. ' ' .. use.kid .. ' ' .. candidate)
outlive(record)
return {ticket, 'NEW'}
