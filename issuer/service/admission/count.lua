-- What an identity has had signed: sets of metric values by run key, evidence files, twins, and the spread of a day.
--
-- `admit.lua` follows this in one script, and calls `count` when nothing stands against a request any more. It counts
-- what would be signed, compares it with the limits of the policy as `abuse.judge` does, and writes nothing but marks of
-- the filter: `keep_counts` does, once the answer is known. A request that is only explained is counted and not kept.
--
-- All names are hashes in base64url, cut off: of a set of values DIGEST characters, of anything else MARK.

local DIGEST, MARK = 16, 8
local MAX_SETS, MAX_FILES, MAX_OWNERS = 64, 8, 1001
local MAX_NEW_KEYS = 2000 -- of one identity and day; what goes beyond is counted in one key, and not exactly
local DAY_S = 86400
local BITS = 524288 -- of that one key: 64 KiB

-- A run record is one string, because a script that reads and writes a string costs a third of one with a sorted set. Of
-- each set of values: its digest, when it was last signed, and its evidence files.
local function read_sets(raw, from)
  local sets, at = {}, 1
  while at <= #raw do
    local time, files = struct.unpack('>I4B', raw, at + DIGEST)
    local last = at + DIGEST + 4 + files * MARK
    if time > from then
      local held = string.sub(raw, at + DIGEST + 5, last)
      sets[#sets + 1] = {values = string.sub(raw, at, at + DIGEST - 1), time = time, files = held}
    end
    at = last + 1
  end
  return sets
end

local function write_sets(sets)
  local written = {}
  for number, set in ipairs(sets) do
    written[number] = set.values .. struct.pack('>I4B', set.time, #set.files / MARK) .. set.files
  end
  return table.concat(written)
end

-- Marks are of one length and random: one found across the seam of two others is not to be expected in this world.
local function holds(marks, mark) return string.find(marks, mark, 1, true) ~= nil end

local function oldest_of(sets)
  local oldest = 1
  for number, set in ipairs(sets) do
    if set.time < sets[oldest].time then oldest = number end
  end
  return oldest
end

-- How many sets, this one included, have an evidence file of `files`.
local function sharing(sets, own, files)
  local count = 1
  for _, set in ipairs(sets) do
    for _, file in ipairs(set ~= own and files or {}) do
      if holds(set.files, file) then
        count = count + 1
        break
      end
    end
  end
  return count > 1 and count or 0
end

-- Add a result to the sets of its run key. A set that is signed again is as young as now, and counts once.
local function add_set(sets, item, now_s)
  local own
  for _, set in ipairs(sets) do
    if set.values == item.values then own = set end
  end
  local is_new = own == nil
  if is_new then
    if #sets >= MAX_SETS then table.remove(sets, oldest_of(sets)) end
    own = {values = item.values, files = ''}
    sets[#sets + 1] = own
  end
  own.time = now_s
  local fresh = {} -- a file that this set has had says nothing new: a task's configuration comes every night
  for _, file in ipairs(item.files) do
    if not holds(own.files, file) and #own.files < MAX_FILES * MARK then
      own.files, fresh[#fresh + 1] = own.files .. file, file
    end
  end
  return is_new, sharing(sets, own, fresh)
end

-- The one key for what goes beyond the budget: a Bloom filter, forgotten with the day. Says whether `name` was in it.
local function mark(key, name, keeps)
  local hex, command = redis.sha1hex(name), {'BITFIELD', key}
  for probe = 0, 3 do
    local offset = tonumber(string.sub(hex, probe * 5 + 1, probe * 5 + 5), 16) % BITS
    for _, word in ipairs(keeps and {'SET', 'u1', offset, 1} or {'GET', 'u1', offset}) do
      command[#command + 1] = word
    end
  end
  local bits = redis.call(unpack(command))
  return bits[1] + bits[2] + bits[3] + bits[4] == 4
end

-- The number of different sets of a run key, by that filter: the first level that is not marked yet.
local function approximate(key, run, item, keeps)
  if mark(key, run .. item.values, keeps) then return 1, false end
  for level = 1, MAX_SETS do
    if not mark(key, run .. ' ' .. level, keeps) then return level, true end
  end
  return MAX_SETS, true
end

local function add_owners(owners, items)
  for _, item in ipairs(items) do
    if not holds(owners, item.owner) and #owners < MAX_OWNERS * MARK then owners = owners .. item.owner end
  end
  return owners
end

-- What is held of today: `tokens`, `owners` and new `keys` of the identity, and tokens and owners of this CI run.
local function read_day(key, run, now_s)
  local number = math.floor(now_s / DAY_S)
  local today = string.format('%.0f', number)
  local held = redis.call('HMGET', key, 'day', 'tokens', 'owners', 'keys', 'run ' .. run)
  local is_new = held[1] ~= today
  if is_new then held = {} end
  local of_run = held[5] or struct.pack('>I4', 0)
  return {
    today = today, began = number * DAY_S, is_new = is_new,
    tokens = tonumber(held[2] or '0'), owners = held[3] or '', keys = tonumber(held[4] or '0'),
    run_tokens = (struct.unpack('>I4', of_run)), run_owners = string.sub(of_run, 5),
  }
end

-- What a signal does, by the names and in the order of `abuse.THENS`, from 0.
local THROTTLE, QUARANTINE = 2, 3

-- What is held under the keys of the results, in one call. What is none of ours is as good as gone.
local function read_items(before, count)
  local names, held = {}, {}
  for number = 1, count do names[number] = KEYS[before + number] end
  for number, value in ipairs(redis.call('MGET', unpack(names))) do held[names[number]] = value or nil end
  return held
end

-- Count the results of a request. `asked` is `Counting` of redis.py; its keys follow KEYS[before].
local function count(asked, before, now_s, epoch)
  local held = read_items(before, asked.keys)
  local next_key = before
  local function take_key()
    next_key = next_key + 1
    return KEYS[next_key]
  end

  local last = before + asked.keys
  local counted = {asked = asked, day_key = KEYS[last + 1], filter = KEYS[last + 2], records = {}, twins = {}, items = {}}
  counted.crossed, counted.severity = {}, 0
  local day = read_day(counted.day_key, asked.run, now_s)
  counted.day = day

  local function cross(signal, severity)
    counted.crossed[signal] = (counted.crossed[signal] or 0) + 1
    if severity > counted.severity then counted.severity, counted.signal = severity, signal end
  end

  local function may_create()
    if day.keys >= MAX_NEW_KEYS then return false end
    day.keys = day.keys + 1
    return true
  end

  -- The different sets of a run key, and since when; nothing is exact beyond the budget.
  local function count_sets(item)
    local run, from = take_key(), now_s - asked.window_s
    local sets = counted.records[run]
    if not sets and (held[run] or may_create()) then sets = read_sets(held[run] or '', from) end
    if not sets then
      local number, is_new = approximate(counted.filter, run, item, asked.keeps)
      return number, day.began, false, is_new, 0
    end
    counted.records[run] = sets
    local is_new, files = add_set(sets, item, now_s)
    return #sets, math.max(from, math.min(epoch, sets[oldest_of(sets)].time)), true, is_new, files
  end

  local function count_twins(item)
    if not item.twins then return false end
    local key = take_key()
    local first = counted.twins[key] or held[key]
    if first or may_create() then counted.twins[key] = first or item.repo end
    return first ~= nil and first ~= item.repo
  end

  local limits = asked.limits
  for number, item in ipairs(asked.items) do
    local total, since, exact, is_new, files = count_sets(item)
    local twin = count_twins(item)
    if is_new and total > limits.distinct then cross('attempts', limits.attempts) end
    if files > limits.files then cross('artifact', limits.artifact) end
    if twin then cross('twins', 0) end
    counted.items[number] = {total, since, exact, is_new, files, twin}
  end

  day.tokens, day.owners = day.tokens + #asked.items, add_owners(day.owners, asked.items)
  if asked.run ~= '' and (day.run_tokens > 0 or may_create()) then
    day.run_tokens, day.run_owners = day.run_tokens + #asked.items, add_owners(day.run_owners, asked.items)
  end
  counted.spread = {#day.owners / MARK, #day.run_owners / MARK, day.tokens, day.run_tokens} -- as abuse.SPREADS
  for which, most in ipairs(limits.spread) do
    if counted.spread[which] > most then cross('spread', limits.spread_then) end
  end
  return counted
end

-- `abuse.Tally`, as MessagePack.
local function tally_of(counted, throttled_s, released_s)
  local owners, run_owners, tokens, run_tokens = unpack(counted.spread)
  return cmsgpack.pack({counted.items, owners, run_owners, tokens, run_tokens, throttled_s, released_s})
end

local function begin_day(counted)
  local day = counted.day
  if not day.is_new then return end
  day.is_new = false
  redis.call('DEL', counted.day_key, counted.filter)
  redis.call('HSET', counted.day_key, 'day', day.today)
  redis.call('EXPIRE', counted.day_key, 2 * DAY_S)
end

local function keep_counts(counted)
  local day, asked = counted.day, counted.asked
  for run, sets in pairs(counted.records) do
    redis.call('SET', run, write_sets(sets), 'EX', asked.window_s)
  end
  for key, repo in pairs(counted.twins) do
    redis.call('SET', key, repo, 'EX', asked.twins_s)
  end
  begin_day(counted)
  local fields = {'tokens', day.tokens, 'owners', day.owners, 'keys', day.keys}
  if day.run_tokens > 0 then
    fields[7], fields[8] = 'run ' .. asked.run, struct.pack('>I4', day.run_tokens) .. day.run_owners
  end
  redis.call('HSET', counted.day_key, unpack(fields))
  if day.keys >= MAX_NEW_KEYS then redis.call('EXPIRE', counted.filter, 2 * DAY_S) end
end

-- How often each signal was raised today, for the operator.
local function keep_signals(counted)
  begin_day(counted)
  for signal, times in pairs(counted.crossed) do
    redis.call('HINCRBY', counted.day_key, 'signal ' .. signal, times)
  end
end

