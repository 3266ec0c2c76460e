-- A `redis` whose commands on hashes work on held values (lib/core/held_values.lua). Calls that share one script call
-- run with it in place of the server's: their preludes call it as always.
-- GIVES: redis
-- USES: core/held_values

local commands = {}

function commands.HGET(key, field)
  return held_value(key, held_at(key), text_of(field))
end

function commands.HEXISTS(key, field)
  return held_value(key, held_at(key), text_of(field)) and 1 or 0
end

function commands.HMGET(key, ...)
  local hash, found, missing = held_at(key), { ... }, {}
  if next(hash.added) then write_added(key, hash) end
  for i, field in ipairs(found) do
    field = text_of(field)
    found[i] = field
    if hash.values[field] == nil then
      if hash.row then hash.values[field] = false else missing[#missing + 1] = field end
    end
  end
  if #missing > 0 then
    for i, value in ipairs(server.call('HMGET', key, unpack(missing))) do hash.values[missing[i]] = value end
  end
  for i, field in ipairs(found) do found[i] = text_of(hash.values[field]) end
  return found
end

function commands.HSET(key, ...)
  local hash, pairs_of = held_at(key), { ... }
  for i = 1, #pairs_of, 2 do hold_value(key, hash, text_of(pairs_of[i]), pairs_of[i + 1]) end
end

function commands.HDEL(key, ...)
  local hash = held_at(key)
  for _, field in ipairs({ ... }) do hold_value(key, hash, text_of(field), false) end
end

function commands.HINCRBY(key, field, amount)
  local hash, more = held_at(key), tonumber(amount)
  field = text_of(field)
  if hash.added[field] then
    hash.added[field] = hash.added[field] + more
    return tonumber(hash.values[field]) + hash.added[field]
  end
  local text = held_value(key, hash, field) or '0'
  if not string.find(text, '^%-?%d+$') then
    write_held(key, hash)
    return server.call('HINCRBY', key, field, amount) -- which fails
  end
  local value, sum = tonumber(text), tonumber(text) + more
  if math.max(math.abs(value), math.abs(sum)) < EXACT then
    hold_value(key, hash, field, sum)
  else
    write_held(key, hash)
    hash.added[field], hash.row = more, nil
  end
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

-- Any other command reads or changes its keys itself.
local function call(command, ...)
  if commands[command] then return commands[command](...) end
  for _, key in ipairs({ ... }) do forget_held(key) end
  return server.call(command, ...)
end

redis = { call = call, row = held_row, change_row = change_row, error_reply = server.error_reply }
