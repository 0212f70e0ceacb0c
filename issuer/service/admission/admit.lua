-- THE admission: epoch, quarantine, uses, limits and counts, in one atomic step (contract section 5).
--
-- One script, because a decision spread over several commands is a race: two workers would both read "unused" and both
-- issue. Nothing here is ever undone; what is refused late has been paid for. `count.lua` stands in front of it.
--
-- KEYS     1 epoch   2 ... a key for each rate   then, of a refused request, its refusals
--          then, where results are counted: for each its run key and, if it has one, its twins'
--          then the standing of who pays; where results are counted, its day and its filter
--          last the use record of a use, or of what was presented
-- ARGV     1 `pack_call` of script.py: bytes, because a map of MessagePack cost as much as all that is asked of the store
--          2 the candidate template   3 the template that it is to replace, or ''
--          4 `pack_counting` of script.py: what is counted, for `count.lua`, or ''
--
-- Answers {ticket, verdict, ...}. The ticket comes back so that an answer can never be taken for another call's.

local ticket, now, leeway_s, is_durable, again_interval, again_tolerance, quarantine_us, signal_quarantine_us,
  is_refused, is_presented, is_use, is_limited, rates, at = struct.unpack('>I8I8I4BI8I8I8I8BBBBB', ARGV[1])
local rates_at = at
local allowed, issued_at, keep_until, signed_by, usable_kids, request_digest, refusals_at
at = at + 16 * rates
if is_refused == 1 then refusals_at, at = at, at + 16 end
if is_presented == 1 then allowed = struct.unpack('>I4', string.sub(ARGV[1], at)) end
if is_use == 1 then
  allowed, issued_at, keep_until, signed_by, usable_kids, request_digest = struct.unpack('>I4I8I8Bc0I2c0Bc0', ARGV[1], at)
end
local candidate, replaced = ARGV[2], ARGV[3]

if now == 0 then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local now_s = math.floor(now / 1000000)

-- Microseconds since 1970 fit a double exactly (2^53 is the year 2255), and redis.call() writes them so; but `..` would
-- write 1.8e+15.
local function digits(number)
  return string.format('%.0f', number)
end

-- All plain values in one call: a call costs more than what it reads. MGET takes a key of a foreign kind for one that is
-- not there, and so for a limit that nobody has used: of those that protect us none may be one.
local guards, asked = 1 + rates + is_refused, #ARGV[4] > 0 and read_asked(ARGV[4])
local plain = guards + (asked and asked.keys or 0)
local held, standing_key = redis.call('MGET', unpack(KEYS, 1, plain)), KEYS[plain + 1]
for number = 1, guards do
  if not held[number] and redis.call('EXISTS', KEYS[number]) > 0 then
    return redis.error_reply('WRONGTYPE a key of the admission is of a foreign kind')
  end
end

-- The arithmetic of limits.spend: GCRA, one theoretical arrival time a rate. The interval is that of the whole cost.
local function charge(stored, interval, tolerance)
  local arrival = math.max(tonumber(stored or '0'), now) + interval
  return arrival, arrival - now - tolerance
end

-- An arrival time in the past says nothing, so the key may go when it has passed.
local function keep(key, arrival)
  redis.call('SET', key, arrival, 'PX', math.max(1, math.ceil((arrival - now) / 1000)))
end

-- (1) The epoch: since when this store remembers every use. It goes first, so that even a refused request notices a
-- loss. The server's own run_id tells a restart from a snapshot and a promoted replica, and only INFO on the very
-- server that runs this script tells it truly, whatever the connection went through: 4 to 7 us, measured on Valkey 9.1.
local run = '-'
if is_durable == 0 then
  local info = redis.call('INFO', 'server')
  local _, last = string.find(info, 'run_id:', 1, true) -- plain: the pattern (%x+) costs 6 us more
  run = string.sub(info, last + 1, last + 40)
end
local stored = held[1] or ''
local space = string.find(stored, ' ', 1, true) or 1
local epoch, bound_to = tonumber(string.sub(stored, 1, space - 1)), string.sub(stored, space + 1)
if not epoch or (bound_to ~= run and is_durable == 0) then
  -- The second that is under way may hold uses that were forgotten: the epoch is the next one.
  epoch = now_s + 1
  redis.call('SET', KEYS[1], digits(epoch) .. ' ' .. run)
end

-- Was this identity token issued since the store remembers? If not, its use may have been forgotten. A nonce has no such
-- time: who presents one could have presented another.
local remembered_from = epoch + leeway_s
if is_limited == 1 and issued_at < remembered_from then return {ticket, 'RESET', remembered_from} end

-- (2) The standing: until when who pays is quarantined and by what; throttled, and when the next request fits; released
-- by an operator from what signals do. A policy that shortens an end shortens it for those who wait, too, counted from
-- their next request on; but not what an operator has said by hand.
local quarantined, by, throttled, slowed, released = 0, '-', 0, 0, 0
local standing = redis.call('GET', standing_key)
if standing then
  quarantined, by, throttled, slowed, released = string.match(standing, '^(%d+) (%S+) (%d+) (%d+) (%d+)$')
  quarantined, throttled = tonumber(quarantined), tonumber(throttled)
  slowed, released = tonumber(slowed), tonumber(released)
end

local function keep_standing()
  local written = {digits(quarantined), by, digits(throttled), digits(slowed), digits(released)}
  local left_ms = math.ceil((math.max(quarantined, throttled, released) - now) / 1000)
  redis.call('SET', standing_key, table.concat(written, ' '), 'PX', math.max(1, left_ms))
end

if quarantined > now then
  local longest = quarantined - now
  if by == 'refusals' then
    longest = quarantine_us
  elseif by ~= 'operator' then
    longest = signal_quarantine_us
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
  if used == 0 or redis.call('PTTL', record) < left_ms then redis.call('PEXPIRE', record, left_ms) end
end

local function again(counter, verdict, template, tally)
  local arrival, wait = charge(redis.call('HGET', record, counter), again_interval, again_tolerance)
  if wait > 0 then return {ticket, 'RATE_USE', wait} end
  redis.call('HSET', record, counter, arrival)
  if is_use == 1 then outlive() end
  return {ticket, verdict, template, tally}
end

if is_use == 1 then
  -- The record must outlive the identity token, and a nonce its day. If this clock says that it is over already, the
  -- record would vanish as it is written, and the next request with this token would be "new": the clocks disagree,
  -- nobody decides.
  left_ms = keep_until * 1000 - math.floor(now / 1000)
  if left_ms <= 0 then return {ticket, 'LATE'} end

  slot = 'd:' .. request_digest
  local kept = redis.call('HMGET', record, slot, 'n')
  if kept[1] then
    local expires, its_kid, first = string.match(kept[1], '^(%d+) (%S+) ()')
    local tally, behind = struct.unpack('>I2c0', kept[1], first)
    local template = string.sub(kept[1], behind)
    local is_usable = string.find(usable_kids, ' ' .. its_kid .. ' ', 1, true)
    -- Whoever asks for a template to be replaced names the one that it saw: of many who ask at once one replaces it, and
    -- the others get its candidate.
    if tonumber(expires) > now_s and is_usable and template ~= replaced then
      return again('s', 'SAME', template, tally)
    end
  end
  used = tonumber(kept[2] or '0')
  if used >= allowed then return again('x', 'EXHAUSTED') end
elseif is_presented == 1 and tonumber(redis.call('HGET', record, 'n') or '0') >= allowed then
  -- A replay, whatever becomes of it: refused, or only explained. Its record has paid; an explanation looks as any other,
  -- because it does not say whether a use is spent.
  local answer = again('x', 'COUNTED', 0)
  if answer[2] ~= 'COUNTED' or not asked then return answer end
  paid = true
end

-- (4) Rates. All are tried before any is stored: a full integration must not eat the identity's share, nor the other way.
local arrivals, ahead, before, worst, longest = {}, {}, {}, nil, 0
for number = 1, rates do
  local interval, tolerance = struct.unpack('>I8I8', ARGV[1], rates_at + 16 * (number - 1))
  local arrival, wait = charge(held[1 + number], interval, tolerance)
  arrivals[number], ahead[number], before[number] = arrival, arrival - now, arrival - now - interval
  if wait > longest then worst, longest = number, wait end
end
if worst and not paid then return {ticket, 'RATE', worst, longest, before} end
local is_throttled = asked and not paid and throttled > now
if is_throttled then
  local interval, tolerance = asked.throttle_interval, asked.throttle_tolerance
  local arrival, wait = charge(slowed, interval, tolerance)
  throttled = math.min(throttled, now + asked.throttle_us)
  if wait > 0 then
    keep_standing()
    local left = throttled - now -- with it ends the wait, also that of a batch which the throttle never takes
    return {ticket, 'THROTTLED', interval > tolerance and left or math.min(wait, left), throttled}
  end
  slowed = arrival
end
for number = 1, paid and 0 or rates do
  keep(KEYS[1 + number], arrivals[number])
end

-- (5) A refused request claims no use. Too many of them, and who pays is quarantined; the end is also the value, because
-- a passed-in clock does not move the store's expiry.
if is_refused == 1 then
  local interval, tolerance = struct.unpack('>I8I8', ARGV[1], refusals_at)
  local arrival, wait = charge(held[guards], interval, tolerance)
  if wait > 0 then
    quarantined, by = now + quarantine_us, 'refusals'
    keep_standing()
  else
    keep(KEYS[guards], arrival)
  end
  return {ticket, 'COUNTED', arrival - now}
end

-- (6) Counts. What crosses a limit may throttle who pays from the next request on; a quarantine begins with this one.
local tally = ''
if asked then
  local counted = count(asked, guards, held, now_s, epoch)
  local is_free, ends = released > now, throttled
  if not is_free and counted.severity == THROTTLE then ends = now + asked.throttle_us end
  if is_use == 1 then
    throttled = ends
    if counted.crossed then keep_signals(counted) end
    if not is_free and counted.severity == QUARANTINE then
      quarantined, by = now + signal_quarantine_us, counted.signal
      keep_standing()
      return {ticket, 'QUARANTINED', quarantined, signal_quarantine_us, by, tally_of(counted, 0, 0)}
    end
    keep_counts(counted, asked)
  end
  tally = tally_of(counted, ends > now and math.ceil(ends / 1000000) or 0, is_free and math.ceil(released / 1000000) or 0)
  if is_throttled or (is_use == 1 and throttled > now) then keep_standing() end
end

-- (7) A grant that was only explained claims no use, and is not told the rates: a spent use is not charged to them.
if is_use == 0 then return {ticket, 'COUNTED', 0, tally} end

redis.call('HSET', record, 'n', used + 1, slot, signed_by .. struct.pack('>I2', #tally) .. tally .. candidate)
outlive()
return {ticket, 'NEW', tally, ahead}
