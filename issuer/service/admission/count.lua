-- The counts of an identity's signed results: sets of metric values by run key, evidence files, twins, and the spread
-- over model owners in a day.
--
-- `admit.lua` comes after this in the same script, and calls `count` when all its other checks have passed. `count`
-- counts the results that would be signed and compares them with the limits of the policy, as `abuse.judge` does. It
-- writes nothing. `keep_counts` writes once the answer is known, and never for a request that is only explained.
--
-- All names are the first characters of base64url hashes: DIGEST characters for a set of values, MARK for all others.
-- Every request pays for each function and table that is created here, so rarely needed ones are created late.

local DIGEST, MARK = 16, 8
local MAX_SETS, MAX_FILES, MAX_OWNERS = 64, 8, 1001
local MAX_NEW_KEYS = 2000 -- for one identity and day; beyond it, one key counts approximately
local DAY_S, DAY_US = 86400, 86400 * 1000000
local NO_RUN = 'run         '
local STATE = '>I8I4I4I2' -- of the payer, before its owners: arrival time of its rate, day, tokens, new keys
local THROTTLE, QUARANTINE = 2, 3 -- the effect of a signal: its index in `abuse.THENS`

-- All marks have one length and are random, so a false match across the border of two others is negligibly rare.
local function add_mark(marks, mark, most)
  if string.find(marks, mark, 1, true) or #marks >= most * MARK then return marks end
  return marks .. mark
end

-- A run record is one string, because that costs the script a third of a sorted set. For each set of values it has the
-- digest, the time of the last signature, and the evidence files.
local function write_set(values, time, files)
  return values .. struct.pack('>I4B', time, #files / MARK) .. files
end

-- Add a result to an existing record. A set that is signed again gets the current time, and counts once. Returns the
-- record, the number of its sets, the time of the oldest, whether this one is new, and how many sets share an evidence
-- file that this set did not have before, 0 without such a file.
local function add_set(raw, values, files, now_s, from)
  local sets, own, at = {}, nil, 1
  while at <= #raw do
    local time, count = struct.unpack('>I4B', raw, at + DIGEST)
    local last = at + DIGEST + 4 + count * MARK
    if time > from then
      local set = {string.sub(raw, at, at + DIGEST - 1), time, string.sub(raw, at + DIGEST + 5, last)}
      sets[#sets + 1] = set
      if set[1] == values then own = set end
    end
    at = last + 1
  end

  local function oldest()
    local found = 1
    for number, set in ipairs(sets) do
      if set[2] < sets[found][2] then found = number end
    end
    return found
  end

  local is_new = own == nil
  if is_new then
    if #sets >= MAX_SETS then table.remove(sets, oldest()) end
    own = {values, now_s, ''}
    sets[#sets + 1] = own
  end
  own[2] = now_s
  local fresh = '' -- only files that are new to this set count: a task's configuration file comes every night
  for first = 1, #files, MARK do
    local file = string.sub(files, first, first + MARK - 1)
    local held = add_mark(own[3], file, MAX_FILES)
    if held ~= own[3] then own[3], fresh = held, fresh .. file end
  end

  local sharing, written = 1, {}
  for number, set in ipairs(sets) do
    for first = 1, set ~= own and #fresh or 0, MARK do
      if string.find(set[3], string.sub(fresh, first, first + MARK - 1), 1, true) then
        sharing = sharing + 1
        break
      end
    end
    written[number] = write_set(set[1], set[2], set[3])
  end
  return table.concat(written), #sets, sets[oldest()][2], is_new, sharing > 1 and sharing or 0
end

-- Approximate the number of different sets of a run key beyond the budget of keys. One key per identity, a Bloom filter
-- of 64 KiB, lives for the day. A new set marks the first unmarked level of its run key. `marks` has the new names with
-- their places in the filter until `keep_counts`, because a refused request must leave no marks.
local function approximate(filter, run, values, marks)
  local function is_marked(name)
    if marks[name] then return true end
    local hex, places, command = redis.sha1hex(name), {}, {'BITFIELD_RO', filter}
    for probe = 0, 3 do
      local place = tonumber(string.sub(hex, probe * 5 + 1, probe * 5 + 5), 16) % 524288
      places[probe + 1] = place
      for _, word in ipairs({'GET', 'u1', place}) do command[#command + 1] = word end
    end
    local bits = redis.call(unpack(command))
    if bits[1] + bits[2] + bits[3] + bits[4] == 4 then return true end
    marks[name] = places
    return false
  end
  if is_marked(run .. values) then return 1, false end
  for level = 1, MAX_SETS do
    if not is_marked(run .. ' ' .. level) then return level, true end
  end
  return MAX_SETS, true
end

-- Count the results of a request on top of today's `tokens`, `keys` and `owners`, and of `of_run`, the counts of the CI
-- run. Their keys follow KEYS[before], and `held` has their values. A key of another type counts as absent.
local function count(counting, before, held, filter, now_s, epoch, tokens, keys, owners, of_run)
  local limits, raw_items, at = counting.limits, ARGV[4], 1
  local records, twins, items, marks, crossed, severity, worst = {}, {}, {}, {}, {}, 0, nil

  local function cross(signal, its)
    crossed[signal] = (crossed[signal] or 0) + 1
    if its > severity then severity, worst = its, signal end
  end

  local has_run, run_tokens, run_owners = counting.run, 0, ''
  if of_run then run_tokens, run_owners = struct.unpack('>I4', of_run), string.sub(of_run, 5) end

  local from, key = now_s - limits.window_s, before
  for item = 1, counting.results do
    local values, repo, owner, has_twins, files, last = struct.unpack('>c16c8c8BB', raw_items, at)
    at = last + files * MARK
    files = string.sub(raw_items, last, at - 1)

    key = key + 1
    local name = KEYS[key]
    local raw = records[name] or held[key]
    local total, oldest, is_new, sharing, is_exact = 1, now_s, true, 0, true
    if raw then
      records[name], total, oldest, is_new, sharing = add_set(raw, values, files, now_s, from)
    elseif keys < MAX_NEW_KEYS then
      keys, records[name] = keys + 1, write_set(values, now_s, files)
    else
      total, is_new = approximate(filter, name, values, marks)
      oldest, is_exact = now_s - now_s % DAY_S, false
    end

    local is_twin = false
    if has_twins == 1 then
      key = key + 1
      local twin = KEYS[key]
      local first = twins[twin] or held[key]
      is_twin = first and first ~= repo
      if first then
        twins[twin] = first
      elseif keys < MAX_NEW_KEYS then
        keys, twins[twin] = keys + 1, repo
      end
    end

    if is_new and total > limits.attempts then cross('attempts', limits.attempts_then) end
    if sharing > limits.artifact then cross('artifact', limits.artifact_then) end
    if is_twin then cross('twins', 0) end

    owners = add_mark(owners, owner, MAX_OWNERS)
    if has_run then run_owners = add_mark(run_owners, owner, MAX_OWNERS) end
    local since = is_exact and math.max(from, math.min(epoch, oldest)) or oldest
    -- `abuse.ItemTally` as MessagePack: an array of six.
    items[item] = struct.pack('>BBBBI4BBBBB', 0x96, 0xcc, total, 0xce, since, is_exact and 0xc3 or 0xc2,
      is_new and 0xc3 or 0xc2, 0xcc, sharing, is_twin and 0xc3 or 0xc2)
  end

  tokens = tokens + counting.results
  if has_run and (run_tokens > 0 or keys < MAX_NEW_KEYS) then
    if run_tokens == 0 then keys = keys + 1 end
    run_tokens = run_tokens + counting.results
  else
    run_owners = ''
  end
  local day_owners, owners_of_run = #owners / MARK, #run_owners / MARK
  if day_owners > limits.owners_a_day then cross('spread', limits.spread_then) end
  if owners_of_run > limits.owners_a_run then cross('spread', limits.spread_then) end
  if tokens > limits.tokens_a_day then cross('spread', limits.spread_then) end
  if run_tokens > limits.tokens_a_run then cross('spread', limits.spread_then) end

  return {
    records = records, window_s = limits.window_s, twins = twins, twins_s = limits.twins_s, marks = marks,
    crossed = crossed, severity = severity, signal = worst, tokens = tokens, keys = keys, owners = owners,
    of_run = run_tokens > 0 and struct.pack('>I4', run_tokens) .. run_owners,
    tally = struct.pack('>BBI2', 0x97, 0xdc, counting.results) .. table.concat(items)
      .. struct.pack('>BI4BI4BI4BI4', 0xce, day_owners, 0xce, owners_of_run, 0xce, tokens, 0xce, run_tokens),
  }
end

-- `abuse.Tally` as MessagePack: the counts, and the ends of a throttle and of a release.
local function tally_of(counted, throttled_s, released_s)
  return counted.tally .. struct.pack('>BI4BI4', 0xce, throttled_s, 0xce, released_s)
end

local function keep_counts(counted, filter)
  for name, record in pairs(counted.records) do redis.call('SETEX', name, counted.window_s, record) end
  for name, repo in pairs(counted.twins) do redis.call('SETEX', name, counted.twins_s, repo) end
  for _, places in pairs(counted.marks) do
    for _, place in ipairs(places) do redis.call('SETBIT', filter, place, 1) end
  end
  if next(counted.marks) then redis.call('EXPIRE', filter, 2 * DAY_S) end
end

