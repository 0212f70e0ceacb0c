-- THE admission: epoch, quarantine, uses and limits, in one atomic step (contract section 5).
--
-- One script, because a decision spread over several commands is a race: two workers would both read "unused" and both
-- issue. Nothing here is ever undone; what is refused late has been paid for.
--
-- KEYS     1 epoch   2 quarantine of who pays   3 ... a key for each of call.rates
--          then the refusals rate of a refusal; last the use record of a use, or of `call.presented`
-- ARGV     1 `ScriptArgument` of redis.py, by its names, as MessagePack: one argument in place of twenty, whose
--          encoding cost the caller more than the rest of the call
--          2 the candidate template   3 the template that it is to replace, or '' (cmsgpack does not read raw bytes)
--
-- Answers {ticket, verdict, ...}. The ticket comes back so that an answer can never be taken for another call's.

local call = cmsgpack.unpack(ARGV[1])
local ticket, use, candidate, replaced = call.ticket, call.use, ARGV[2], ARGV[3]

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

-- The arithmetic of limits.spend: GCRA, one theoretical arrival time a rate. `rate` is {interval * cost, tolerance}.
local function charge(stored, rate)
  local arrival = math.max(tonumber(stored or '0'), now) + rate[1]
  return arrival, arrival - now - rate[2]
end

-- An arrival time in the past says nothing, so the key may go when it has passed.
local function keep(key, arrival)
  redis.call('SET', key, digits(arrival), 'PX', digits(math.max(1, math.ceil((arrival - now) / 1000))))
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
local epoch, bound_to = string.match(redis.call('GET', KEYS[1]) or '', '^(%d+) (%S+)$')
epoch = tonumber(epoch)
if not epoch or (bound_to ~= run and not call.durable_store) then
  -- The second that is under way may hold uses that were forgotten: the epoch is the next one.
  epoch = now_s + 1
  redis.call('SET', KEYS[1], digits(epoch) .. ' ' .. run)
end

-- Was this identity token issued since the store remembers? If not, its use may have been forgotten. A nonce has no such
-- time: who presents one could have presented another.
local remembered_from = epoch + call.leeway_s
if use and use.issued_at and use.issued_at < remembered_from then return {ticket, 'RESET', remembered_from} end

-- (2) Quarantine. An operator who shortens it frees at once those who wait.
local ends = tonumber(redis.call('GET', KEYS[2]) or '0')
if ends > now then
  local left = math.min(ends - now, call.quarantine_us)
  return {ticket, 'QUARANTINED', now + left, left}
end

-- (3) The use record. A template that came before is given again while it is good, and the same request becomes the same
-- token. Anything else needs a use that is left. A repeat and a replay are charged to the record alone, each for itself:
-- who finds a spent token in a log uses up neither its owner's rates nor its owner's repeats.
local record, slot, left_ms, used = KEYS[#KEYS], nil, nil, nil

local function uses() return tonumber(redis.call('HGET', record, 'n') or '0') end

local function outlive()
  if redis.call('PTTL', record) < left_ms then redis.call('PEXPIRE', record, digits(left_ms)) end -- raise, never lower
end

local function again(counter, verdict, template)
  local arrival, wait = charge(redis.call('HGET', record, counter), call.again)
  if wait > 0 then return {ticket, 'RATE_USE', wait} end
  redis.call('HSET', record, counter, digits(arrival))
  if use then outlive() end
  return {ticket, verdict, template}
end

local function usable(kid)
  for _, usable_kid in ipairs(use.usable_kids) do
    if usable_kid == kid then return true end
  end
  return false
end

if use then
  -- The record must outlive the identity token, and a nonce its day. If this clock says that it is over already, the
  -- record would vanish as it is written, and the next request with this token would be "new": the clocks disagree,
  -- nobody decides.
  left_ms = use.keep_until * 1000 - math.floor(now / 1000)
  if left_ms <= 0 then return {ticket, 'LATE'} end

  slot = 'd:' .. use.request_digest
  local before = redis.call('HGET', record, slot)
  if before then
    local expires, kid, template = string.match(before, '^(%d+) (%S+) (.*)$')
    -- Whoever asks for a template to be replaced names the one that it saw: of many who ask at once one replaces it, and
    -- the others get its candidate.
    if tonumber(expires) > now_s and usable(kid) and template ~= replaced then return again('s', 'SAME', template) end
  end
  used = uses()
  if used >= use.allowed then return again('x', 'EXHAUSTED') end
elseif call.presented and uses() >= call.presented.allowed then
  return again('x', 'COUNTED', 0) -- a replay, whatever becomes of it: refused, or only explained
end

-- (4) Rates. All are tried before any is stored: a full integration must not eat the identity's share, nor the other way.
local arrivals, worst, longest = {}, nil, 0
for number, rate in ipairs(call.rates) do
  local arrival, wait = charge(redis.call('GET', KEYS[2 + number]), rate)
  arrivals[number] = arrival
  if wait > longest then worst, longest = number, wait end
end
if worst then return {ticket, 'RATE', worst, longest} end
for number, arrival in ipairs(arrivals) do
  keep(KEYS[2 + number], arrival)
end

-- (5) A refused request claims no use. Too many of them, and who pays is quarantined; the end is also the value, because
-- a passed-in clock does not move the store's expiry. A grant that was only explained claims none either.
if not use then
  if not call.refusals then return {ticket, 'COUNTED', 0} end
  local refusals = KEYS[3 + #call.rates]
  local arrival, wait = charge(redis.call('GET', refusals), call.refusals)
  if wait > 0 then
    redis.call('SET', KEYS[2], digits(now + call.quarantine_us), 'PX', digits(call.quarantine_us / 1000))
  else
    keep(refusals, arrival)
  end
  return {ticket, 'COUNTED', arrival - now}
end

redis.call('HSET', record, 'n', digits(used + 1), slot, digits(use.template_exp) .. ' ' .. use.kid .. ' ' .. candidate)
outlive()
return {ticket, 'NEW'}
