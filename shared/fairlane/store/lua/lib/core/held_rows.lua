-- Hashes that a script call has read whole: each is read once, and what has changed of it is written once.
-- GIVES: EXACT held_at held_text change_held forget_held write_hashes
-- ENDS: write_hashes

EXACT = 9007199254740992 -- 2^53: from here on Lua's numbers skip whole numbers
local MOST = 1000 -- values of one command: `unpack` takes some thousands

-- A number as Redis keeps it.
local function text_of(value)
  if type(value) ~= 'number' then return value end
  return string.format(value % 1 == 0 and math.abs(value) < EXACT and '%.0f' or '%.14g', value)
end

-- The held hash at `key`, from CALL.hashes, whose fields `texts` hold no numbers. `row`: all fields, with numbers as
-- numbers; it shows later changes, and the caller must not change it. `exact`: what Redis has, or was given as text:
-- `row` does not show how a number was written. `changed`: fields to write.
function held_at(key, texts)
  local hashes = CALL.hashes or {}
  CALL.hashes = hashes
  if not hashes[key] then
    local flat, row, exact = server.call('HGETALL', key), {}, {}
    texts = texts or {}
    for i = 1, #flat, 2 do
      local field, value = flat[i], flat[i + 1]
      row[field], exact[field] = not texts[field] and tonumber(value) or value, value
    end
    hashes[key] = { row = row, exact = exact, texts = texts, changed = {} }
  end
  return hashes[key]
end

-- A field's text; nil if there is none.
function held_text(hash, field)
  return hash.exact[field] or text_of(hash.row[field])
end

-- Writes a held hash and drops it, before another command reads or changes it in Redis.
function forget_held(key)
  local set, gone, hash = {}, {}, CALL.hashes[key]
  for field in pairs(hash.changed) do
    local value = held_text(hash, field)
    if value then set[#set + 1], set[#set + 2] = field, value else gone[#gone + 1] = field end
  end
  for i = 1, #set, MOST do server.call('HSET', key, unpack(set, i, math.min(i + MOST - 1, #set))) end
  for i = 1, #gone, MOST do server.call('HDEL', key, unpack(gone, i, math.min(i + MOST - 1, #gone))) end
  CALL.hashes[key] = nil
end

-- Holds a new value (nil: none). The first change of a script call goes to Redis at once, so that a server that takes
-- no writes refuses it before anything has changed.
function change_held(key, hash, field, value)
  if hash.row[field] == value then return end
  local exact = type(value) == 'string' and value or nil
  if exact and hash.exact[field] == exact then return end
  if not CALL.written then
    if value == nil then server.call('HDEL', key, field) else server.call('HSET', key, field, text_of(value)) end
    CALL.written = true
  else
    hash.changed[field] = true
  end
  hash.row[field], hash.exact[field] = exact and not hash.texts[field] and tonumber(exact) or value, exact
end

-- Writes everything that is held: the last act of a script call.
function write_hashes()
  for key in pairs(CALL.hashes or {}) do forget_held(key) end
end
