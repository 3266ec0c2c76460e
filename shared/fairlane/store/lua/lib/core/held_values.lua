-- The fields of hashes that a script call has read or changed: each is read once, and each hash is written once.
-- GIVES: EXACT text_of held_at held_value hold_value held_row write_added write_held forget_held write_hashes

-- CALL.hashes, by key: `values` of fields (false: none); `row`, once all were read, the same with numbers as numbers.
-- `changed` are fields to write. `added` is what to add to fields whose values Lua's numbers cannot hold exactly.
EXACT = 9007199254740992 -- 2^53: from here on Lua's numbers skip whole numbers

-- A number as Redis keeps it.
function text_of(value)
  if type(value) ~= 'number' then return value end
  return string.format(value % 1 == 0 and math.abs(value) < EXACT and '%.0f' or '%.14g', value)
end

function held_at(key)
  local hashes = CALL.hashes or {}
  hashes[key], CALL.hashes = hashes[key] or { values = {}, changed = {}, added = {} }, hashes
  return hashes[key]
end

function write_added(key, hash)
  for field, amount in pairs(hash.added) do
    server.call('HINCRBY', key, field, string.format('%.0f', amount))
    hash.values[field], CALL.written = nil, true
  end
  hash.added = {}
end

-- Writes what is held of a hash, in parts: `unpack` takes no more than some thousands of values.
function write_held(key, hash)
  local set, gone = {}, {}
  for field in pairs(hash.changed) do
    local value = hash.values[field]
    if value then set[#set + 1], set[#set + 2] = field, text_of(value) else gone[#gone + 1] = field end
  end
  for i = 1, #set, 1000 do server.call('HSET', key, unpack(set, i, math.min(i + 999, #set))) end
  for i = 1, #gone, 1000 do server.call('HDEL', key, unpack(gone, i, math.min(i + 999, #gone))) end
  hash.changed = {}
  write_added(key, hash)
end

-- Writes a hash that others will read or change in Redis.
function forget_held(key)
  local hashes = CALL.hashes or {}
  if not hashes[key] then return end
  write_held(key, hashes[key])
  hashes[key] = nil
end

-- Writes everything that is held: the last act of a script call.
function write_hashes()
  for key in pairs(CALL.hashes or {}) do forget_held(key) end
end

function held_value(key, hash, field)
  if hash.added[field] then write_added(key, hash) end
  if hash.values[field] == nil then hash.values[field] = not hash.row and server.call('HGET', key, field) end
  return text_of(hash.values[field])
end

-- Notes a value (false: none). The first change of a script call goes to Redis at once: a server that takes no writes
-- refuses it, as it would without this file, before anything has changed.
function hold_value(key, hash, field, value)
  if hash.added[field] then write_added(key, hash) end
  if hash.values[field] == value then return end
  if CALL.written then
    hash.changed[field] = true
  else
    if value then server.call('HSET', key, field, text_of(value)) else server.call('HDEL', key, field) end
    CALL.written = true
  end
  hash.values[field] = value
  if hash.row then hash.row[field] = value and (tonumber(value) or value) or nil end
end

-- The whole hash as a table, its numbers as numbers. It shows later changes; the caller changes nothing in it.
function held_row(key)
  local hash = held_at(key)
  if next(hash.added) then write_added(key, hash) end
  if hash.row then return hash.row end
  local flat, values = server.call('HGETALL', key), hash.values
  for i = 1, #flat, 2 do values[flat[i]] = values[flat[i]] == nil and flat[i + 1] or values[flat[i]] end
  hash.row = {}
  for field, value in pairs(values) do hash.row[field] = value and (tonumber(value) or value) or nil end
  return hash.row
end
