-- The fields of hashes that a script call has read or changed: each is read once. Fields are text.
-- GIVES: held_at held_value hold_value held_row
-- USES: core/held_writes

-- The held hash at `key`, from CALL.hashes. `values`: by field (false: none). `row`: all fields, with numbers as
-- numbers, once all were read. `changed`: fields to write. `added`: amounts to add to values that Lua cannot hold
-- exactly.
function held_at(key)
  local hashes = CALL.hashes
  if not hashes then
    hashes = {}
    CALL.hashes = hashes
  end
  local hash = hashes[key]
  if not hash then
    hash = { values = {}, changed = {}, added = {} }
    hashes[key] = hash
  end
  return hash
end

-- A field's value as it is held: a number, text, or false.
function held_value(key, hash, field)
  if hash.added[field] then write_added(key, hash) end
  local value = hash.values[field]
  if value == nil then
    local row = hash.row
    if row then value = row[field] or false else value = server.call('HGET', key, field) end
    hash.values[field] = value
  end
  return value
end

-- Holds a new value (false: none). The first change of a script call goes to Redis at once, so that a server that takes
-- no writes refuses it before anything has changed.
function hold_value(key, hash, field, value)
  if hash.added[field] then write_added(key, hash) end
  local values, row = hash.values, hash.row
  if values[field] == value then return end
  if not hash.row and not next(values) then server.call('HLEN', key) end -- fails at a key of another type
  if CALL.written then
    hash.changed[field] = true
  else
    if value then server.call('HSET', key, field, text_of(value)) else server.call('HDEL', key, field) end
    CALL.written = true
  end
  values[field] = value
  if row then row[field] = value and (tonumber(value) or value) or nil end
end

-- The whole hash as a table, its numbers as numbers. It shows later changes; the caller must not change it.
function held_row(key)
  local hash = held_at(key)
  if next(hash.added) then write_added(key, hash) end
  if hash.row then return hash.row end
  local flat, row = server.call('HGETALL', key), {}
  for i = 1, #flat, 2 do row[flat[i]] = tonumber(flat[i + 1]) or flat[i + 1] end
  for field, value in pairs(hash.values) do row[field] = value and (tonumber(value) or value) or nil end
  hash.row = row
  return row
end
