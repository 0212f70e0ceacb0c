-- THE admission: epoch, quarantine, uses, limits and counts, in one atomic step (contract section 5).
--
-- One script, because a decision spread over several commands is a race: two workers would both read "unused" and both
-- issue. Nothing here is ever undone; what is refused late has been paid for. `count.lua` stands in front of it.
--
-- KEYS     1 epoch   2 standing of who pays   3 its refusals   4 ... a key for each of call.rates
--          then, where results are counted: for each its run key and, if it has one, its twins'; the day, the filter
--          last the use record of a use, or of `call.presented`
-- ARGV     1 `ScriptArgument` of redis.py, by its names, as MessagePack: one argument in place of twenty, whose
--          encoding cost the caller more than the rest of the call
--          2 the candidate template   3 the template that it is to replace, or '' (cmsgpack does not read raw bytes)
--          4 what is counted, for `count.lua`, or ''
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

-- All plain values in one call: a call costs more than what it reads. MGET takes a key of a foreign kind for one that is
-- not there, and so for a limit that nobody has used: of those that protect us none may be one.
local RATES, counting = 3, #ARGV[4] > 0 and read_asked(ARGV[4])
local held = {}
do
  local names, absent = {KEYS[1]}, {}
  if call.refusals then names[2] = KEYS[RATES] end
  for number = 1, #call.rates do names[#names + 1] = KEYS[RATES + number] end
  local guards = #names
  for number = 1, counting and counting.keys or 0 do names[guards + number] = KEYS[RATES + #call.rates + number] end
  for number, value in ipairs(redis.call('MGET', unpack(names))) do
    held[names[number]] = value or nil
    if not value and number <= guards then absent[#absent + 1] = names[number] end
  end
  if #absent > 0 and redis.call('EXISTS', unpack(absent)) > 0 then
    return redis.error_reply('WRONGTYPE a key of the admission is of a foreign kind')
  end
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
local epoch, bound_to = string.match(held[KEYS[1]] or '', '^(%d+) (%S+)$')
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

-- (2) The standing: until when who pays is quarantined and by what; throttled, and when the next request fits; released
-- by an operator from what signals do. A policy that shortens an end shortens it for those who wait, too, counted from
-- their next request on; but not what an operator has said by hand.
local standing, stood = {0, '-', 0, 0, 0}, redis.call('GET', KEYS[2])
if stood then standing = {string.match(stood, '^(%d+) (%S+) (%d+) (%d+) (%d+)$')} end
local quarantined, by = tonumber(standing[1]), standing[2]
local throttled, slowed, released = tonumber(standing[3]), tonumber(standing[4]), tonumber(standing[5])

local function keep_standing()
  local written = {digits(quarantined), by, digits(throttled), digits(slowed), digits(released)}
  local left_ms = math.ceil((math.max(quarantined, throttled, released) - now) / 1000)
  redis.call('SET', KEYS[2], table.concat(written, ' '), 'PX', digits(math.max(1, left_ms)))
end

if quarantined > now then
  local longest = quarantined - now
  if by == 'refusals' then
    longest = call.quarantine_us
  elseif by ~= 'operator' then
    longest = call.signal_quarantine_us
  end
  if quarantined - now > longest then -- kept, or each request would be told another end
    quarantined = now + longest
    keep_standing()
  end
  return {ticket, 'QUARANTINED', quarantined, quarantined - now, by}
end

-- (3) The use record. A template that came before is given again while it is good, and the same request becomes the same
-- token. Anything else needs a use that is left. A repeat and a replay are charged to the record alone, each for itself:
-- who finds a spent token in a log uses up neither its owner's rates nor its owner's repeats.
local record, slot, left_ms, used, paid = KEYS[#KEYS], nil, nil, nil, false

local function outlive()
  -- Raise, never lower; a record that is new has no end yet.
  if used == 0 or redis.call('PTTL', record) < left_ms then redis.call('PEXPIRE', record, digits(left_ms)) end
end

local function again(counter, verdict, template, tally)
  local arrival, wait = charge(redis.call('HGET', record, counter), call.again)
  if wait > 0 then return {ticket, 'RATE_USE', wait} end
  redis.call('HSET', record, counter, digits(arrival))
  if use then outlive() end
  return {ticket, verdict, template, tally}
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
  local kept = redis.call('HMGET', record, slot, 'n')
  if kept[1] then
    local expires, kid, size, rest = string.match(kept[1], '^(%d+) (%S+) (%d+) (.*)$')
    local tally, template = string.sub(rest, 1, size), string.sub(rest, size + 1)
    -- Whoever asks for a template to be replaced names the one that it saw: of many who ask at once one replaces it, and
    -- the others get its candidate.
    if tonumber(expires) > now_s and usable(kid) and template ~= replaced then
      return again('s', 'SAME', template, tally)
    end
  end
  used = tonumber(kept[2] or '0')
  if used >= use.allowed then return again('x', 'EXHAUSTED') end
elseif call.presented and tonumber(redis.call('HGET', record, 'n') or '0') >= call.presented.allowed then
  -- A replay, whatever becomes of it: refused, or only explained. Its record has paid; an explanation looks as any other,
  -- because it does not say whether a use is spent.
  local answer = again('x', 'COUNTED', 0)
  if answer[2] ~= 'COUNTED' or not counting then return answer end
  paid = true
end

-- (4) Rates. All are tried before any is stored: a full integration must not eat the identity's share, nor the other way.
local arrivals, ahead, worst, longest = {}, {}, nil, 0
for number, rate in ipairs(call.rates) do
  local arrival, wait = charge(held[KEYS[RATES + number]], rate)
  arrivals[number], ahead[number] = arrival, arrival - now
  if wait > longest then worst, longest = number, wait end
end
if worst and not paid then
  for number, rate in ipairs(call.rates) do ahead[number] = ahead[number] - rate[1] end
  return {ticket, 'RATE', worst, longest, ahead}
end
local throttle = counting and not paid and throttled > now
if throttle then
  local interval, tolerance = counting.throttle_interval, counting.throttle_tolerance
  local arrival, wait = charge(slowed, {interval, tolerance})
  throttled = math.min(throttled, now + counting.throttle_us)
  if wait > 0 then
    keep_standing()
    local left = throttled - now -- with it ends the wait, also that of a batch which the throttle never takes
    return {ticket, 'THROTTLED', interval > tolerance and left or math.min(wait, left), throttled}
  end
  slowed = arrival
end
for number, arrival in ipairs(paid and {} or arrivals) do
  keep(KEYS[RATES + number], arrival)
end

-- (5) A refused request claims no use. Too many of them, and who pays is quarantined; the end is also the value, because
-- a passed-in clock does not move the store's expiry.
if call.refusals then
  local arrival, wait = charge(held[KEYS[RATES]], call.refusals)
  if wait > 0 then
    quarantined, by = now + call.quarantine_us, 'refusals'
    keep_standing()
  else
    keep(KEYS[RATES], arrival)
  end
  return {ticket, 'COUNTED', arrival - now}
end

-- (6) Counts. What crosses a limit may throttle who pays from the next request on; a quarantine begins with this one.
local tally = ''
if counting then
  local counted = count(counting, RATES + #call.rates, held, now_s, epoch)
  local is_free, ends = released > now, throttled
  if not is_free and counted.severity == THROTTLE then ends = now + counting.throttle_us end
  if use then
    throttled = ends
    if counted.crossed then keep_signals(counted) end
    if not is_free and counted.severity == QUARANTINE then
      quarantined, by = now + call.signal_quarantine_us, counted.signal
      keep_standing()
      return {ticket, 'QUARANTINED', quarantined, call.signal_quarantine_us, by, tally_of(counted, 0, 0)}
    end
    keep_counts(counted, counting)
  end
  local function seconds(us) return us > now and math.ceil(us / 1000000) or 0 end
  tally = tally_of(counted, seconds(ends), seconds(released))
  if throttle or (use and throttled > now) then keep_standing() end
end

-- (7) A grant that was only explained claims no use, and is not told the rates: a spent use is not charged to them.
if not use then return {ticket, 'COUNTED', 0, tally} end

local written = {digits(use.template_exp), use.kid, #tally, tally .. candidate}
redis.call('HSET', record, 'n', digits(used + 1), slot, table.concat(written, ' '))
outlive()
return {ticket, 'NEW', tally, ahead}
