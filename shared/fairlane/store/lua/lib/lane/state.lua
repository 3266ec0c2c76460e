-- A lane's hash as a table: read, changed and written back in one step each.
-- GIVES: AXES CONFIGURED ESTIMATED REPORTED read_hash known edited write_hash
-- USES: core/time

-- Axes with a bucket each: `<axis>_level` units at `<axis>_ms`. The axis `day` is a count, `day_used` until
-- `day_until_ms`; its learned limit a day is `day_rate`.
AXES = { 'requests', 'tokens', 'input', 'output' }
CONFIGURED = {
  requests = 'requests_per_minute', tokens = 'tokens_per_minute', input = 'input_tokens_per_minute',
  output = 'output_tokens_per_minute', day = 'requests_per_day',
}

-- Fields by axis. To make a name takes longer than to look it up.
ESTIMATED = { requests = 'requests_est', tokens = 'tokens_est', input = 'input_est', output = 'output_est' }
REPORTED = {
  requests = 'requests_reported', tokens = 'tokens_reported', input = 'input_reported', output = 'output_reported',
}

-- Fields of lanes and of their limits that hold texts, whatever these look like.
local TEXTS = {
  alike = true, cache_reads = true, charge = true, circuit = true, denied = true, fail_team = true, kept_by = true,
  last_error = true, models = true, openings = true, parked = true, refused_on = true, refused_teams = true,
  rows_own = true, search_by = true, shut = true, shut_teams = true, stop = true, suspect = true,
  suspect_before = true, window_by = true,
}

-- `value + 0` parses a number once, `tonumber` twice (luaB_tonumber of Lua 5.1). Fails at other texts.
local function of_numbers(flat)
  local row = {}
  for i = 1, #flat, 2 do
    local name, value = flat[i], flat[i + 1]
    if value == '' or TEXTS[name] then row[name] = value else row[name] = value + 0 end
  end
  return row
end

-- The hash at `key` as a table, its numbers as numbers.
function read_hash(key)
  if redis.row then return redis.row(key, TEXTS) end
  local flat = redis.call('HGETALL', key)
  local good, row = pcall(of_numbers, flat)
  if good then return row end
  row = {}
  for i = 1, #flat, 2 do row[flat[i]] = not TEXTS[flat[i]] and tonumber(flat[i + 1]) or flat[i + 1] end
  return row
end

-- A field's value; nil if it has none, or an empty one.
function known(value)
  return value and value ~= '' and value or nil
end

-- An edit of a lane: `write_hash` stores the fields that are set in it; others are read from `lane`.
function edited(lane)
  return setmetatable({}, { __index = lane })
end

-- Stores a table's fields; of an `edited` lane, only those that differ from what was read.
function write_hash(key, row)
  if redis.change_row then return redis.change_row(key, row, TEXTS) end
  local flat, count, edits = {}, 0, getmetatable(row)
  local before = edits and edits.__index or {}
  for name, value in pairs(row) do
    if before[name] ~= value then
      flat[count + 1], flat[count + 2] = name, argument_of(value)
      count = count + 2
    end
  end
  if count > 0 then redis.call('HSET', key, unpack(flat, 1, count)) end
end
