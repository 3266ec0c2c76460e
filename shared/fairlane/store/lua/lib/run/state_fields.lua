-- Fields of runs' states as one script reads, changes and counts them: it reads each once, and writes all that it
-- changes in one step, at its end. A report changes a dozen, and commands for each take longer than what they do.
-- Files that use it read and change these fields by it alone.
-- GIVES: read_fields field_of set_field add_to_field drop_fields write_states
-- ENDS: write_states
-- USES: core/time

-- CALL.states, by key: `values` of fields (false: none), `changed` ones, and what to add to those that were not read.
local function state_at(key)
  CALL.states = CALL.states or {}
  local state = CALL.states[key]
  if not state then
    state = { values = {}, changed = {}, added = {} }
    CALL.states[key] = state
  end
  return state
end

-- Reads those of the fields that were not read yet, in one step.
function read_fields(key, ...)
  local state, missing = state_at(key), {}
  local values, added = state.values, state.added
  for _, name in ipairs({ ... }) do
    if values[name] == nil then missing[#missing + 1] = name end
  end
  if #missing == 0 then return end
  for i, value in ipairs(redis.call('HMGET', key, unpack(missing))) do
    local name = missing[i]
    values[name] = added[name] and (tonumber(value or '') or 0) + added[name] or value
    if added[name] then state.changed[name], added[name] = true, nil end
  end
end

-- A field's value: text, or a number that this script has set; false where there is none.
function field_of(key, name)
  local values = state_at(key).values
  if values[name] == nil then read_fields(key, name) end
  return values[name]
end

-- Sets a field; `value` false deletes it. The first change of calls that share a script goes to Redis at once: a server
-- that takes no writes refuses it before anything has changed (lib/core/held_values.lua).
function set_field(key, name, value)
  local state = state_at(key)
  if redis.change_row and not CALL.written then redis.call('HSET', key, name, argument_of(value or '')) end
  state.values[name], state.changed[name], state.added[name] = value, true, nil
end

-- Adds to a whole number (none: 0), which stays below 10^15.
function add_to_field(key, name, amount)
  local state = state_at(key)
  if redis.change_row and not CALL.written then read_fields(key, name) end
  local value = state.values[name]
  if value == nil then
    state.added[name] = (state.added[name] or 0) + amount
  else
    set_field(key, name, (tonumber(value or '') or 0) + amount)
  end
end

-- Leaves what was changed unwritten: the run is deleted.
function drop_fields(key)
  if CALL.states then CALL.states[key] = nil end
end

local function write_state(key, state)
  local names, set, gone = {}, {}, {}
  for name in pairs(state.added) do names[#names + 1] = name end
  read_fields(key, unpack(names))
  for name in pairs(state.changed) do
    local value = state.values[name]
    if value then set[#set + 1], set[#set + 2] = name, argument_of(value) else gone[#gone + 1] = name end
  end
  if #gone > 0 then redis.call('HDEL', key, unpack(gone)) end
  if #set > 0 then redis.call('HSET', key, unpack(set)) end
end

-- Writes all that has changed: the last act of a script. What it sets from then on is read anew.
function write_states()
  for key, state in pairs(CALL.states or {}) do write_state(key, state) end
  CALL.states = nil
end
