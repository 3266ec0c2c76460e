-- Holds the hashes that a script call reads and changes, so that each field is read once and each hash written once.
-- A verb that says `HOLDS: hashes` runs with this `redis` in place of the server's: its preludes call it as always.
-- GIVES: redis write_hashes

-- By key: `values`, its fields' values (false: none); `row`, where the whole hash was read, the same as numbers where
-- they are numbers; `changed`, fields to write; `added`, what to add to fields whose values Lua's numbers cannot hold
-- exactly.
local hashes = {}
local written = false -- whether this script call has changed anything in Redis
local commands = {}
local EXACT = 9007199254740992 -- 2^53: from here on Lua's numbers skip whole numbers

local function text_of(value)
  if type(value) ~= 'number' then return value end
  return string.format(value % 1 == 0 and math.abs(value) < EXACT and '%.0f' or '%.14g', value)
end

local function hash_at(key)
  local hash = hashes[key]
  if not hash then
    hash = { values = {}, changed = {}, added = {} }
    hashes[key] = hash
  end
  return hash
end

local function write_added(key, hash)
  for field, amount in pairs(hash.added) do
    server.call('HINCRBY', key, field, string.format('%.0f', amount))
    hash.values[field] = nil
  end
  hash.added = {}
end

local function write_hash_at(key, hash)
  local set, gone = {}, {}
  for field in pairs(hash.changed) do
    local value = hash.values[field]
    if value then
      set[#set + 1], set[#set + 2] = field, text_of(value)
    else
      gone[#gone + 1] = field
    end
  end
  -- `unpack` takes some thousands of values.
  for i = 1, #set, 1000 do server.call('HSET', key, unpack(set, i, math.min(i + 999, #set))) end
  for i = 1, #gone, 1000 do server.call('HDEL', key, unpack(gone, i, math.min(i + 999, #gone))) end
  hash.changed = {}
  write_added(key, hash)
end

-- Writes everything that is held. The verb's last act.
function write_hashes()
  for key, hash in pairs(hashes) do write_hash_at(key, hash) end
  hashes = {}
end

local function value_at(key, hash, field)
  if hash.added[field] then write_added(key, hash) end
  local value = hash.values[field]
  if value == nil then
    value = not hash.row and server.call('HGET', key, field)
    hash.values[field] = value
  end
  return text_of(value)
end

-- Notes a value (false: none). The first change of a script call goes to Redis at once: a server that takes no writes
-- refuses it, as it would without this file, before anything has changed.
local function change(key, hash, field, value)
  if hash.added[field] then write_added(key, hash) end
  if hash.values[field] == value then return end
  if written then
    hash.changed[field] = true
  else
    if value then server.call('HSET', key, field, text_of(value)) else server.call('HDEL', key, field) end
    written = true
  end
  hash.values[field] = value
  if hash.row then hash.row[field] = value and (tonumber(value) or value) or nil end
end

function commands.HGET(key, field)
  return value_at(key, hash_at(key), text_of(field))
end

function commands.HEXISTS(key, field)
  return value_at(key, hash_at(key), text_of(field)) and 1 or 0
end

function commands.HMGET(key, ...)
  local hash, found, missing = hash_at(key), { ... }, {}
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

-- The whole hash as a table, its numbers as numbers. It shows later changes; the caller changes nothing in it.
local function row_of(key)
  local hash = hash_at(key)
  if next(hash.added) then write_added(key, hash) end
  if not hash.row then
    local flat, row = server.call('HGETALL', key), {}
    for i = 1, #flat, 2 do
      if hash.values[flat[i]] == nil then hash.values[flat[i]] = flat[i + 1] end
    end
    for field, value in pairs(hash.values) do row[field] = value and (tonumber(value) or value) or nil end
    hash.row = row
  end
  return hash.row
end

-- Notes the fields of a table as `write_hash` in lib/lane/state.lua does.
local function change_row(key, row)
  local hash = hash_at(key)
  local known = hash.row or {}
  for field, value in pairs(row) do
    if known[field] ~= value then change(key, hash, field, value) end
  end
end

function commands.HGETALL(key)
  row_of(key)
  local flat = {}
  for field, value in pairs(hashes[key].values) do
    if value then flat[#flat + 1], flat[#flat + 2] = field, text_of(value) end
  end
  return flat
end

function commands.HSET(key, ...)
  local hash, pairs_of = hash_at(key), { ... }
  for i = 1, #pairs_of, 2 do change(key, hash, text_of(pairs_of[i]), pairs_of[i + 1]) end
end

function commands.HDEL(key, ...)
  local hash = hash_at(key)
  for _, field in ipairs({ ... }) do change(key, hash, text_of(field), false) end
end

function commands.HINCRBY(key, field, amount)
  local hash, more = hash_at(key), tonumber(amount)
  field = text_of(field)
  if hash.added[field] then
    hash.added[field] = hash.added[field] + more
    return tonumber(hash.values[field]) + hash.added[field]
  end
  local text = value_at(key, hash, field) or '0'
  if not string.find(text, '^%-?%d+$') then
    write_hash_at(key, hash)
    return server.call('HINCRBY', key, field, amount) -- which fails
  end
  local value = tonumber(text)
  local sum = value + more
  if math.max(math.abs(value), math.abs(sum)) < EXACT then
    change(key, hash, field, sum)
    return sum
  end
  if hash.changed[field] then write_hash_at(key, hash) end
  hash.added[field], hash.row = more, nil
  if not written then write_added(key, hash) end
  written = true
  return sum
end

-- Any other command reads or changes its keys itself: what is held of them is written and forgotten before.
local function call(command, ...)
  local held = commands[command]
  if held then return held(...) end
  for _, key in ipairs({ ... }) do
    if hashes[key] then
      write_hash_at(key, hashes[key])
      hashes[key] = nil
    end
  end
  return server.call(command, ...)
end

redis = { call = call, row = row_of, change_row = change_row, error_reply = server.error_reply }
