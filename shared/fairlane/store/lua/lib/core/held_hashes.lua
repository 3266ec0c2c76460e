-- A `redis` whose commands work on hashes that were read whole (lib/core/held_rows.lua). Several calls that share one
-- script call use it in place of the server's `redis`; their preludes need not know.
-- GIVES: redis
-- USES: core/held_rows

local commands = {}

function commands.HGET(hash, _, field)
  return held_text(hash, field .. '') or false
end

function commands.HEXISTS(hash, _, field)
  return hash.row[field .. ''] ~= nil and 1 or 0
end

function commands.HMGET(hash, _, ...)
  local found = { ... }
  for i, field in ipairs(found) do found[i] = held_text(hash, field .. '') or false end
  return found
end

function commands.HSET(hash, key, field, value, ...)
  change_held(key, hash, field .. '', value)
  if ... then commands.HSET(hash, key, ...) end
end

function commands.HDEL(hash, key, field, ...)
  change_held(key, hash, field .. '', nil)
  if ... then commands.HDEL(hash, key, ...) end
end

function commands.HINCRBY(hash, key, field, amount)
  local value = hash.row[field .. ''] or 0
  local sum = type(value) == 'number' and value + amount
  local whole = sum and string.format('%.0f', value + 0) == (held_text(hash, field .. '') or '0')
  if not whole or sum % 1 ~= 0 or math.abs(sum) >= EXACT then
    forget_held(key)
    return server.call('HINCRBY', key, field, amount) -- or fails
  end
  change_held(key, hash, field .. '', sum)
  return sum
end

-- Any other command goes to the server. Its first argument is its one key, so the held hash of that key is written
-- first.
local function call(command, ...)
  local key = ...
  local hash = CALL.hashes and CALL.hashes[key]
  if not hash then return server.call(command, ...) end
  if commands[command] then return commands[command](hash, ...) end
  forget_held(key)
  return server.call(command, ...)
end

-- Writes a table's fields, as `write_hash` in lib/lane/state.lua does.
local function change_row(key, row, texts)
  local hash = held_at(key, texts)
  for field, value in pairs(row) do change_held(key, hash, field, value) end
end

local function held_row(key, texts)
  return held_at(key, texts).row
end

redis = { call = call, row = held_row, change_row = change_row, error_reply = server.error_reply }
