-- Writes the fields of hashes that a script call has changed (lib/core/held_values.lua): each hash once.
-- GIVES: EXACT text_of exact_number write_added add_in_redis forget_held write_hashes
-- ENDS: write_hashes

EXACT = 9007199254740992 -- 2^53: from here on Lua's numbers skip whole numbers

-- A number as Redis keeps it.
function text_of(value)
  if type(value) ~= 'number' then return value end
  return string.format(value % 1 == 0 and math.abs(value) < EXACT and '%.0f' or '%.14g', value)
end

-- A text as a whole number; nil if Lua cannot hold it exactly, or if Redis cannot add to it.
function exact_number(text)
  local number = string.find(text, '^%-?%d+$') and tonumber(text)
  return number and math.abs(number) < EXACT and number or nil
end

function write_added(key, hash)
  for field, amount in pairs(hash.added) do
    server.call('HINCRBY', key, field, string.format('%.0f', amount))
    hash.values[field], CALL.written = nil, true
  end
  hash.added = {}
end

-- Writes the changed fields of a hash, a thousand values at a time: `unpack` takes some thousands at most.
local function write_held(key, hash)
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

-- Adds to a value that Lua's numbers may not hold exactly, or that is no whole number.
function add_in_redis(key, hash, field, value, amount)
  write_held(key, hash)
  if not string.find(text_of(value), '^%-?%d+$') then return server.call('HINCRBY', key, field, amount) end -- fails
  hash.added[field], hash.row = tonumber(amount), nil
  return tonumber(value) + amount
end

-- Writes a held hash and drops it, before another command reads or changes it in Redis.
function forget_held(key)
  local hashes = CALL.hashes
  local hash = hashes and hashes[key]
  if not hash then return end
  write_held(key, hash)
  hashes[key] = nil
end

-- Writes everything that is held: the last act of a script call.
function write_hashes()
  for key in pairs(CALL.hashes or {}) do forget_held(key) end
end
