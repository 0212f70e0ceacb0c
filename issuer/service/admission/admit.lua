-- The admission: epoch, quarantine, uses, limits and counts, in one atomic step (contract section 5).
--
-- It is one script, because several commands would be a race: two workers could both read "unused" and both issue. The
-- script never undoes a step, so a late refusal has already been charged. `count.lua` comes before it in the same text.
-- A redis command costs more than all computation between two commands, so values that are read together are stored
-- together.
--
-- KEYS     1 epoch   then the rate that the payer shares with others, if it has one
--          then, if results are counted: for each one its run key and, if it has one, the key of its twins
--          then the payer: its standing, its refusals, its own rate and its counts of the day
--          then, if results are counted: the payer's filter
--          last the use record of the claimed use, or of the presented credential
-- ARGV     1 `Call` of script.py as a map of MessagePack: only numbers and text, because cmsgpack has no bytes
--          2 the candidate template   3 the template that it should replace, or ''
--          4 `pack_items` of script.py: the counted results, for `count.lua`, or ''
--
-- Answers {ticket, verdict, ...}. The ticket shows that the answer belongs to this call and not to another one.

local call = cmsgpack.unpack(ARGV[1])
local ticket, now, use, own, shared, refusals, counting =
  call.ticket, call.now_us, call.use, call.own, call.shared, call.refusals, call.counting
local candidate, replaced = ARGV[2], ARGV[3]

if now == 0 then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local now_s = math.floor(now / 1000000)
local today = math.floor(now_s / DAY_S)

-- Microseconds since 1970 fit a double exactly (2^53 is the year 2255). redis.call() writes all their digits, but `..`
-- would write 1.8e+15.
local function digits(number)
  return string.format('%.0f', number)
end

-- Read all plain values in one call. MGET answers "absent" for a key of another type, which would look like an unused
-- limit. So the keys that protect us must not be of another type.
local guards = shared and 2 or 1
local plain = guards + (counting and counting.keys or 0)
local held, payer, filter = redis.call('MGET', unpack(KEYS, 1, plain)), KEYS[plain + 1], KEYS[plain + 2]
for number = 1, guards do
  if not held[number] and redis.call('EXISTS', KEYS[number]) > 0 then
    return redis.error_reply('WRONGTYPE a key of the admission is of a foreign kind')
  end
end

-- The arithmetic of limits.spend: GCRA, with one theoretical arrival time per rate. The interval is for the whole cost.
local function charge(stored, rate)
  local arrival = math.max(tonumber(stored or 0), now) + rate.interval_us
  return arrival, arrival - now - rate.tolerance_us
end

-- Extend the life of a key, and never shorten it. A new key has no end yet.
local function outlive(key, left_us)
  local left_ms = math.ceil(left_us / 1000)
  if redis.call('PTTL', key) < left_ms then redis.call('PEXPIRE', key, left_ms) end
end

-- (1) The epoch: from when on this store has every use. It comes first, so even a refused request notices a loss. A
-- new run_id shows a restart from a snapshot or a promoted replica. Only INFO, on the server that runs this script, has
-- the right run_id, whatever proxies the connection passes: 4 to 7 us, measured on Valkey 9.1.
local server = '-'
if not call.is_durable then
  local info = redis.call('INFO', 'server')
  local _, last = string.find(info, 'run_id:', 1, true) -- plain: the pattern (%x+) costs 6 us more
  server = string.sub(info, last + 1, last + 40)
end
local stored = held[1] or ''
local space = string.find(stored, ' ', 1, true) or 1
local epoch, bound_to = tonumber(string.sub(stored, 1, space - 1)), string.sub(stored, space + 1)
if not epoch or (bound_to ~= server and not call.is_durable) then
  -- The current second may have lost uses, so the epoch is the next one.
  epoch = now_s + 1
  redis.call('SET', KEYS[1], digits(epoch) .. ' ' .. server)
end

-- If this identity token is older than the epoch, the store may have lost its use. A nonce has no time of issue, and
-- needs none: its caller could have chosen another nonce anyway.
local remembered_from = epoch + call.leeway_s
if use and use.issued_at and use.issued_at < remembered_from then return {ticket, 'RESET', remembered_from, remembered_from - now_s} end

-- (2) The payer. Its standing: the end and the cause of a quarantine; the end of a throttle, and its arrival time; the
-- end of an operator's release from the effects of signals. If a policy shortens a quarantine, that also shortens a
-- current one, counted from the payer's next request. It does not shorten an operator's quarantine.
local run = counting and counting.run or NO_RUN
local of_payer = redis.call('HMGET', payer, 'standing', 'state', refusals and 'refusals' or run)
local quarantined, by, throttled, slowed, released = 0, '-', 0, 0, 0
if of_payer[1] then
  quarantined, by, throttled, slowed, released = string.match(of_payer[1], '^(%d+) (%S+) (%d+) (%d+) (%d+)$')
  quarantined, throttled = tonumber(quarantined), tonumber(throttled)
  slowed, released = tonumber(slowed), tonumber(released)
end

local function keep_standing()
  local written = {digits(quarantined), by, digits(throttled), digits(slowed), digits(released)}
  redis.call('HSET', payer, 'standing', table.concat(written, ' '))
  outlive(payer, math.max(1000, math.max(quarantined, throttled, released) - now))
end

if quarantined > now then
  local longest = quarantined - now
  if by == 'refusals' then
    longest = call.quarantine_us
  elseif by ~= 'operator' then
    longest = call.signal_quarantine_us
  end
  if quarantined - now > longest then -- stored, or each request would get a later end
    quarantined = now + longest
    keep_standing()
  end
  return {ticket, 'QUARANTINED', quarantined, quarantined - now, by}
end

-- The payer's state: the arrival time of its rate, and the last counted day with the tokens, new keys and owners.
local own_arrival, day, tokens, keys, owners, of_run = 0, 0, 0, 0, '', of_payer[3]
if of_payer[2] then
  local owners_at
  own_arrival, day, tokens, keys, owners_at = struct.unpack(STATE, of_payer[2])
  owners = string.sub(of_payer[2], owners_at)
end
local is_today = day == today
if not is_today then tokens, keys, owners, of_run = 0, 0, '', nil end

-- (3) The use record. The same request gets its earlier template while that is good, and so the same token. Every other
-- request needs an unspent use. Repeats and replays are charged only to the record, each with a separate count:
-- somebody who finds a spent token in a log uses up neither its owner's rates nor its owner's repeats.
local record, left_us, used, paid = KEYS[#KEYS], nil, nil, false

local function again(counter, verdict, template, tally)
  local arrival, wait = charge(redis.call('HGET', record, counter), call.again)
  if wait > 0 then return {ticket, 'RATE_USE', wait} end
  redis.call('HSET', record, counter, arrival)
  if use then outlive(record, left_us) end
  return {ticket, verdict, template, tally}
end

if use then
  -- The record must outlive the identity token, or the day of a nonce. If that time is over by this clock, the record
  -- would vanish at once, and the next request with this token would be "new". The clocks disagree, so this call is
  -- undecided.
  left_us = use.keep_until * 1000000 - now
  if left_us <= 0 then return {ticket, 'LATE'} end

  local kept = redis.call('HMGET', record, use.slot, 'n')
  if kept[1] then
    local expires, its_kid, first = string.match(kept[1], '^(%d+) (%S+) ()')
    local tally, behind = struct.unpack('>I2c0', kept[1], first)
    local template = string.sub(kept[1], behind)
    local is_usable = string.find(use.usable_kids, ' ' .. its_kid .. ' ', 1, true)
    -- A call that wants a template replaced names the one that it has. Of many such calls at once, the first replaces
    -- the template, and the others get the first one's candidate.
    if tonumber(expires) > now_s and is_usable and template ~= replaced then
      return again('s', 'SAME', template, tally)
    end
  end
  used = tonumber(kept[2] or '0')
  if used >= use.allowed then return again('x', 'EXHAUSTED') end
elseif call.presented and tonumber(redis.call('HGET', record, 'n') or '0') >= call.presented then
  -- A replay, whether it is refused or only explained, is charged to its record. An explanation looks like any other,
  -- because it must not reveal whether a use is spent.
  local answer = again('x', 'COUNTED', 0)
  if answer[2] ~= 'COUNTED' or not counting then return answer end
  paid = true
end

-- (4) Rates. All are checked before any is stored: if the integration's rate is full, the identity must not be charged,
-- and the reverse. A payer with its own rate also shares one. Its own rate is stored later, with its state.
local own_wait, shared_arrival, shared_wait = 0, 0, 0
if own then own_arrival, own_wait = charge(own_arrival, own) end
if shared then shared_arrival, shared_wait = charge(held[guards], shared) end
if not paid and math.max(own_wait, shared_wait) > 0 then
  local before = {shared_arrival - shared.interval_us - now}
  if own then table.insert(before, 1, own_arrival - own.interval_us - now) end
  if own_wait >= shared_wait then return {ticket, 'RATE', 1, own_wait, before} end
  return {ticket, 'RATE', #before, shared_wait, before}
end
local is_throttled = counting and not paid and throttled > now
if is_throttled then
  local throttle = counting.throttle
  local arrival, wait = charge(slowed, throttle)
  throttled = math.min(throttled, now + counting.throttle_us)
  if wait > 0 then
    keep_standing()
    local left = throttled - now -- the wait ends with the throttle, also for a batch that the throttle never permits
    local never = throttle.interval_us > throttle.tolerance_us
    return {ticket, 'THROTTLED', never and left or math.min(wait, left), throttled}
  end
  slowed = arrival
end
if shared and not paid then -- an arrival time in the past has no effect, so the key may expire with it
  redis.call('SET', KEYS[guards], shared_arrival, 'PX', math.ceil((shared_arrival - now) / 1000))
end

-- An arrival time in the past has no effect and is not stored.
local function keep_refusals(arrival)
  if arrival <= now then return end
  redis.call('HSET', payer, 'refusals', arrival)
  outlive(payer, arrival - now)
end

-- (5) A refused request claims no use, but too many of them quarantine the payer. The end is also stored as a value,
-- because a test's clock does not move the store's expiry.
if refusals then
  local arrival, wait = charge(of_payer[3], refusals)
  if wait > 0 then
    quarantined, by = now + call.quarantine_us, 'refusals'
    keep_standing()
  else
    keep_refusals(arrival)
  end
  return {ticket, 'COUNTED', arrival - now}
end

-- The first state of a day extends the key by two days, so it outlives every value that ends within one.
local function keep_state()
  local state = struct.pack(STATE, own_arrival, day, tokens, keys) .. owners
  if of_run then
    redis.call('HSET', payer, 'state', state, run, of_run)
  else
    redis.call('HSET', payer, 'state', state)
  end
  if not is_today or own_arrival - now > DAY_US then outlive(payer, math.max(2 * DAY_US, own_arrival - now)) end
end

-- (6) Counts. A crossed limit may throttle the payer from the next request on. A quarantine begins with this one.
local tally = ''
if counting then
  local counted = count(counting, guards, held, filter, now_s, epoch, tokens, keys, owners, of_run)
  local is_free, ends = released > now, throttled
  if not is_free and counted.severity == THROTTLE then ends = now + counting.throttle_us end
  if use then
    throttled = ends
    if day ~= today then -- drop all counts of the day before, but keep the payer's standing and refusals
      day = today
      local refused = (redis.call('HGET', payer, 'refusals') or 0) + 0 -- a malformed value fails here, before the DEL
      redis.call('DEL', payer, filter)
      keep_refusals(refused)
      if math.max(quarantined, throttled, released) > now then keep_standing() end
    end
    for signal, times in pairs(counted.crossed) do -- today's number, for the operator
      redis.call('HINCRBY', payer, 'signal ' .. signal, times)
    end
    if not is_free and counted.severity == QUARANTINE then
      quarantined, by = now + call.signal_quarantine_us, counted.signal
      keep_state()
      keep_standing()
      return {ticket, 'QUARANTINED', quarantined, call.signal_quarantine_us, by, tally_of(counted, 0, 0)}
    end
    tokens, keys, owners, of_run = counted.tokens, counted.keys, counted.owners, counted.of_run
    keep_counts(counted, filter)
  end
  tally = tally_of(counted, ends > now and math.ceil(ends / 1000000) or 0, is_free and math.ceil(released / 1000000) or 0)
  if is_throttled or (use and throttled > now) then keep_standing() end
end
if own and not paid then keep_state() end

-- (7) An explained grant claims no use. Its answer leaves out the rates: a spent use is not charged to them, so they
-- would reveal whether the use is spent.
if not use then return {ticket, 'COUNTED', 0, tally} end

redis.call('HSET', record, 'n', used + 1, use.slot, use.signed_by .. struct.pack('>I2', #tally) .. tally .. candidate)
if used == 0 then redis.call('PEXPIRE', record, math.ceil(left_us / 1000)) else outlive(record, left_us) end
return {ticket, 'NEW', tally, {own_arrival - now, shared_arrival - now}}
