-- A `redis` whose hash commands work on held values (lib/core/held_values.lua). Several calls that share one script
-- call use it in place of the server's `redis`; their preludes need not know.
-- GIVES: redis
-- USES: core/held_values core/held_writes

local commands = {}

function commands.HGET(key, field)
  return text_of(held_value(key, held_at(key), text_of(field)))
end

function commands.HEXISTS(key, field)
  return held_value(key, held_at(key), text_of(field)) and 1 or 0
end

-- Reads those of the fields that are not held.
local function read_missing(key, values, fields)
  local missing = {}
  for _, field in ipairs(fields) do
    field = text_of(field)
    if values[field] == nil then missing[#missing + 1] = field end
  end
  for i, value in ipairs(server.call('HMGET', key, unpack(missing))) do values[missing[i]] = value end
end

function commands.HMGET(key, ...)
  local hash, found = held_at(key), { ... }
  local values, row = hash.values, hash.row
  for i, field in ipairs(found) do
    field = text_of(field)
    if hash.added[field] then write_added(key, hash) end
    if values[field] == nil and not row then read_missing(key, values, { select(i, ...) }) end
    local value = values[field]
    if value == nil then value = row[field] end
    found[i] = text_of(value) or false
  end
  return found
end

function commands.HSET(key, field, value, ...)
  hold_value(key, held_at(key), text_of(field), value)
  if ... then commands.HSET(key, ...) end
end

function commands.HDEL(key, field, ...)
  hold_value(key, held_at(key), text_of(field), false)
  if ... then commands.HDEL(key, ...) end
end

function commands.HINCRBY(key, field, amount)
  local hash, more = held_at(key), tonumber(amount)
  field = text_of(field)
  if hash.added[field] then
    hash.added[field] = hash.added[field] + more
    return tonumber(hash.values[field]) + hash.added[field]
  end
  local value = held_value(key, hash, field) or 0
  local sum = (type(value) == 'number' and value or exact_number(value) or EXACT) + more
  if sum % 1 ~= 0 or sum <= -EXACT or sum >= EXACT - math.abs(more) then
    return add_in_redis(key, hash, field, value, amount)
  end
  hold_value(key, hash, field, sum)
  return sum
end

-- Writes a table's fields, as `write_hash` in lib/lane/state.lua does.
local function change_row(key, row)
  local hash = held_at(key)
  local known = hash.row or {}
  for field, value in pairs(row) do
    if known[field] ~= value then hold_value(key, hash, field, value) end
  end
end

-- Any other command goes to the server. Its first argument is its one key, so the held hash of that key is written
-- first.
local function call(command, ...)
  local held = commands[command]
  if held then return held(...) end
  forget_held((...))
  return server.call(command, ...)
end

redis = { call = call, row = held_row, change_row = change_row, error_reply = server.error_reply }
