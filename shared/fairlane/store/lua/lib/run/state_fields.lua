-- Caches fields of runs' states within one script: it reads each once, and writes all changes in one step at its end.
-- Files that use this must read and change these fields only through it.
-- GIVES: read_fields field_of set_field add_to_field drop_fields write_states
-- ENDS: write_states
-- USES: core/time

-- CALL.states, by key: `values` of fields (false: none), `changed` ones, and what to add to those that were not read.
local function state_at(key)
  local state = CALL.states and CALL.states[key]
  if state then return state end
  state = { values = {}, changed = {}, added = {} }
  CALL.states = CALL.states or {}
  CALL.states[key] = state
  return state
end

-- Reads those of the fields that were not read yet, in one step.
function read_fields(key, ...)
  local state, names = state_at(key), { ... }
  local values, added, changed = state.values, state.added, state.changed
  for i = next(values) and #names or 0, 1, -1 do
    if values[names[i]] ~= nil then table.remove(names, i) end
  end
  if #names == 0 then return end
  for i, value in ipairs(redis.call('HMGET', key, unpack(names))) do values[names[i]] = value end
  for name, amount in pairs(added) do
    local sum = values[name] ~= nil and (tonumber(values[name] or 0) or 0) + amount
    if sum then values[name], changed[name], added[name] = sum, true, nil end
  end
end

-- A field's value: text, or a number that this script has set; false if there is none.
function field_of(key, name)
  local values = state_at(key).values
  if values[name] == nil then read_fields(key, name) end
  return values[name]
end

-- Sets a field; `value` false deletes it. The first change of calls that share a script goes to Redis at once: a server
-- that takes no writes refuses it before anything has changed (lib/core/held_rows.lua).
function set_field(key, name, value)
  local state = state_at(key)
  local first = redis.change_row and not CALL.written
  if first then CALL.written = redis.call('HSET', key, name, argument_of(value or '')) end
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
    set_field(key, name, (value or 0) + amount)
  end
end

-- Drops all changes, as the run is deleted.
function drop_fields(key)
  if CALL.states then CALL.states[key] = nil end
end

local function write_state(key, state)
  local names, set, gone, count = {}, {}, {}, 0
  for name in pairs(state.added) do names[#names + 1] = name end
  if #names > 0 then read_fields(key, unpack(names)) end
  for name in pairs(state.changed) do
    local value = state.values[name]
    if value then
      set[count + 1], set[count + 2], count = name, argument_of(value), count + 2
    else
      gone[#gone + 1] = name
    end
  end
  if #gone > 0 then redis.call('HDEL', key, unpack(gone)) end
  if count > 0 then redis.call('HSET', key, unpack(set)) end
end

-- Writes all changes, as the last step of a script, and empties the cache.
function write_states()
  for key, state in pairs(CALL.states or {}) do write_state(key, state) end
  CALL.states = nil
end
