-- Teams that are shut out of a lane: only their calls failed while others were answered. So the lane is up for others,
-- and sends one call of such a team at a time. In a lane's hash:
--   shut_teams   "<team>:<n>:<due_ms>,…": n is the permit of a team's latest such call; at due_ms the next one goes,
--                even if nobody was answered since
-- GIVES: shut_out is_shut shut_bound start_shut readmit
-- USES: circuit/circuit_constants core/time lane/state team/in_flight
-- NEEDS: KEY.in_flight

local function shut_teams(row)
  local found = {}
  for team, n, due_ms in string.gmatch(row.shut_teams or '', '([^:,]+):(%d+):(%d+)') do
    found[#found + 1] = { team = team, n = tonumber(n), due_ms = tonumber(due_ms) }
  end
  return found
end

local function entry_of(row, team)
  if not known(row.shut_teams) then return nil end
  for _, each in ipairs(shut_teams(row)) do
    if each.team == team then return each end
  end
  return nil
end

-- Writes a team's entry at the end, or drops it if `n` is nil; if there are too many, drops the first.
local function save_entry(row, team, n, due_ms)
  local kept = {}
  for _, each in ipairs(shut_teams(row)) do
    if each.team ~= team then kept[#kept + 1] = each end
  end
  if n then kept[#kept + 1] = { team = team, n = n, due_ms = due_ms } end
  if #kept > MOST_SHUT then table.remove(kept, 1) end
  for i, each in ipairs(kept) do kept[i] = each.team .. ':' .. whole(each.n) .. ':' .. whole(each.due_ms) end
  row.shut_teams = table.concat(kept, ',')
end

-- Shuts a team out of a lane that answers others: failures from permit `n` on were its own fault.
function shut_out(row, team, n, now)
  save_entry(row, team, n, now)
end

function is_shut(row, lease)
  return entry_of(row, team_of(lease.ref)) ~= nil
end

-- Until when a team that is shut out may start no call (0: when woken); nil if it may. Each answer to another team lets
-- one go: the lane is up, so failures are the team's own fault, and use up attempts.
function shut_bound(row, team, now)
  local entry = entry_of(row, team)
  if not entry then return nil end
  if (tonumber(redis.call('HGET', KEY.in_flight, team) or '') or 0) > 0 then return 0 end
  if (row.answered_n or 0) > entry.n or now >= entry.due_ms then return nil end
  return entry.due_ms
end

-- Notes a call of a team that is shut out. Returns whether nobody was answered since its previous one.
function start_shut(row, limits, team, now)
  local entry = entry_of(row, team)
  if not entry then return false end
  local wait_ms = math.max(1000 * (limits.outage_delay or OUTAGE_DELAY_S), 2 * (known(row.usual_ms) or 0))
  save_entry(row, team, row.granted, now + math.ceil(wait_ms))
  return (row.answered_n or 0) <= entry.n
end

-- Ends the exclusion of a team, whose latest such call shows that it is not at fault.
function readmit(row, lease)
  local team = team_of(lease.ref)
  local entry = entry_of(row, team)
  if entry and lease.n >= entry.n then save_entry(row, team) end
end
