-- What a lane keeps for some teams while they do not use it, and the most that each may take: parts of the lane. Of its
-- rate each part is a generic cell rate algorithm (ITU-T I.371) over lane minutes, of its window whole places. A hash has
-- when the next call may start: 'own <team>' of what is kept for it, 'lent' of what is kept for nobody, 'most <team>'; and 'held <team>', its
-- most and until when (0: when woken) it was last held back by that, for whoever asks why.
-- GIVES: allotments_of beyond_allotment allot keep_allotments

local BURST_MS = 1000 -- a part that was not used may be made up for so long
local FORGOTTEN_MS = 3600000
local NEVER, NONE, ALL = math.huge, 1e-9, 1 - 1e-9
local LENT = 'lent' -- the part that is kept for nobody

local function hash(key)
  local flat, found = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do found[flat[i]] = tonumber(flat[i + 1]) or nil end
  return found
end

local function whole_places(a, part)
  return a.window < math.huge and math.floor(part * a.window + 1e-6) or 0
end

-- `text` is {"<team>": [kept for it, most], …}, parts of 1, or ''. Returns nil where it is ''.
function allotments_of(text, row, limits, now)
  if text == '' then return nil end
  local a = { parts = cjson.decode(text), due = hash(KEY.allotted), flying = hash(KEY.flying), changed = {}, free = 1, now = now }
  a.window = places(row, limits)
  a.free_places = a.window
  for team, part in pairs(a.parts) do
    a.free = a.free - part[1]
    local own = whole_places(a, part[1])
    a.free_places = a.free_places - own + math.min(own, a.flying[team] or 0)
  end
  for _, count in pairs(a.flying) do a.free_places = a.free_places - count end
  return a
end

local function due_of(a, name, part)
  return part > NONE and (a.due[name] or 0) or NEVER
end

-- Which part a call of the team comes out of: its own before what is lent; nil and when one may be there.
local function source(a, team, own)
  local of_own, lent = due_of(a, 'own ' .. team, own), due_of(a, LENT, a.free)
  if of_own <= a.now then return 'own ' .. team, own end
  if lent <= a.now then return LENT, a.free end
  return nil, math.ceil(math.min(of_own, lent))
end

local function charge(a, name, minutes, part)
  a.due[name] = math.max(a.due[name] or 0, a.now - BURST_MS) + minutes * 60000 / part
  a.changed[name] = true
end

-- What holds a call of the team back that takes `minutes` of the lane (nil: its rate is unknown), and until when (0: when woken).
function beyond_allotment(a, team, minutes)
  if not a then return nil end
  local own, most = unpack(a.parts[team] or { 0, 1 })
  local flying, limited = a.flying[team] or 0, a.window < math.huge
  if most < 1 then
    local due = a.due['most ' .. team] or 0
    local full = limited and flying >= math.max(1, whole_places(a, most))
    local until_ms = minutes and due > a.now and math.ceil(due) or full and 0
    if until_ms then
      redis.call('HSET', KEY.allotted, 'held ' .. team, string.format('%.4g %d', most, until_ms))
      a.told = true
      return 'team_share', until_ms
    end
  end
  if a.free > ALL then return nil end
  if minutes then
    local name, at = source(a, team, own)
    if not name then return 'reserved', at end
  end
  if limited and flying >= whole_places(a, own) and a.free_places < 1 then return 'reserved', 0 end
  return nil
end

-- Notes that such a call starts.
function allot(a, team, minutes)
  if not a then return end
  local own, most = unpack(a.parts[team] or { 0, 1 })
  local flying = a.flying[team] or 0
  if flying >= whole_places(a, own) then a.free_places = a.free_places - 1 end
  a.flying[team] = flying + 1
  if not minutes then return end
  if most < 1 then charge(a, 'most ' .. team, minutes, most) end
  if a.free <= ALL then
    local name, part = source(a, team, own)
    charge(a, name, minutes, part)
  end
end

-- Writes what has changed. `owed` is by how many billionths of a minute teams were charged too little, flat: it moves what they may take next.
function keep_allotments(a, owed)
  if not a then return end
  for i = 1, #owed, 2 do
    local team, minutes = owed[i], tonumber(owed[i + 1]) / 1e9
    local own, most = unpack(a.parts[team] or { 0, 1 })
    if most < 1 then charge(a, 'most ' .. team, minutes, most) end
    if a.free <= ALL then
      local name, part = LENT, a.free
      if own > NONE then name, part = 'own ' .. team, own end
      if part > NONE then charge(a, name, minutes, part) end
    end
  end
  if not (a.told or next(a.changed)) then return end
  local latest = a.now
  for name in pairs(a.changed) do redis.call('HSET', KEY.allotted, name, string.format('%.17g', a.due[name])) end
  for _, due in pairs(a.due) do latest = math.max(latest, due) end
  redis.call('PEXPIRE', KEY.allotted, whole(latest - a.now + FORGOTTEN_MS))
end
