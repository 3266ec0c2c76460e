-- Charges teams' calls to their parts of a lane's rate. Each part is a generic cell rate algorithm (ITU-T I.371) over
-- lane minutes, and keeps when its next call may start: 'own <team>' for a team's reserved part, 'lent' for what is
-- reserved for nobody, 'most <team>' for a team's maximum. `shares` are those of lib/team/reserved_shares.lua.
-- GIVES: share_of_team reserves_any paying_part charge_minutes correct_minutes

local BURST_MS = 1000 -- ms: an unused part is saved for so long
local NEVER, NONE, ALL = math.huge, 1e-9, 1 - 1e-9 -- parts are sums of decimals, so 0 and 1 are compared with a margin
local LENT = 'lent'
local WHOLE_LANE = { own = 0, most = 1 } -- of a team without shares

-- A team's share of the lane: {own, most}, the part that is reserved for it and the most that it may take.
function share_of_team(shares, team)
  return shares.parts[team] or WHOLE_LANE
end

-- Whether any part of the lane is reserved for a team.
function reserves_any(shares)
  return shares.free <= ALL
end

local function due_of(shares, name, part)
  return part > NONE and (shares.due[name] or 0) or NEVER
end

-- The part that pays for a call of the team: its own before what is lent; nil and when one of them may be free.
function paying_part(shares, team, own)
  local of_own, lent = due_of(shares, 'own ' .. team, own), due_of(shares, LENT, shares.free)
  if of_own <= shares.now then return 'own ' .. team, own end
  if lent <= shares.now then return LENT, shares.free end
  return nil, math.ceil(math.min(of_own, lent))
end

local function charge(shares, name, minutes, part)
  shares.due[name] = math.max(shares.due[name] or 0, shares.now - BURST_MS) + minutes * 60000 / part
  shares.changed[name] = true
end

-- Charges the parts that pay for a call of the team, whose share is `part`.
function charge_minutes(shares, team, part, minutes)
  if part.most < 1 then charge(shares, 'most ' .. team, minutes, part.most) end
  if reserves_any(shares) then
    local name, size = paying_part(shares, team, part.own)
    charge(shares, name, minutes, size)
  end
end

-- Corrects the parts of a team that was charged `minutes` too little.
function correct_minutes(shares, team, minutes)
  local part = share_of_team(shares, team)
  if part.most < 1 then charge(shares, 'most ' .. team, minutes, part.most) end
  if not reserves_any(shares) then return end
  if part.own > NONE then
    charge(shares, 'own ' .. team, minutes, part.own)
  elseif shares.free > NONE then
    charge(shares, LENT, minutes, shares.free)
  end
end
