-- Teams whose calls alone a lane's provider rejects with 429s (circuit/own_limits). Their calls start one at a time, if
-- their run has had no answer of that kind. Only time lets the next one go: 429s use up no attempts, so if answers to
-- other teams did, such calls would go on for ever. In a lane's hash:
--   refused_teams   "<team>:<n>:<due_ms>:<429s>,…": the permit of a team's latest such call, when the next may start,
--                   and how many in a row met a 429
-- GIVES: hold_refused is_refused refused_until start_refused delay_team admit_refused
-- USES: circuit/circuit_constants core/time lane/state team/in_flight

-- The entry of a team: {n, due_ms, count}; nil if it has none.
local function entry_of(row, team)
  if not known(row.refused_teams) then return nil end
  for each, n, due_ms, count in string.gmatch(row.refused_teams, '([^:,]+):(%d+):(%d+):(%d+)') do
    if each == team then return { n = tonumber(n), due_ms = tonumber(due_ms), count = tonumber(count) } end
  end
  return nil
end

-- Writes a team's entry at the end, or drops it if `entry` is nil; if there are too many, drops the first.
local function save_entry(row, team, entry)
  local kept = {}
  for text, each in string.gmatch(row.refused_teams or '', '(([^:,]+):[%d:]+)') do
    if each ~= team then kept[#kept + 1] = text end
  end
  if entry then
    kept[#kept + 1] = table.concat({ team, whole(entry.n), whole(entry.due_ms), whole(entry.count) }, ':')
  end
  if #kept > MOST_REFUSED then table.remove(kept, 1) end
  row.refused_teams = table.concat(kept, ',')
end

-- Begins to hold a team's calls, at least until `wait_ms`.
function hold_refused(row, team, wait_ms, now)
  save_entry(row, team, { n = row.granted, due_ms = math.max(wait_ms, now + REFUSED_FIRST_MS), count = 0 })
end

function is_refused(row, team)
  return entry_of(row, team) ~= nil
end

-- Until when a team may start no call; nil if it may. `learns` as in the call's lease.
function refused_until(row, team, learns, now)
  local entry = learns and entry_of(row, team)
  return entry and now < entry.due_ms and entry.due_ms or nil
end

-- Notes a call of a held team: the next one waits for its end, at most for REFUSED_LONGEST_MS.
function start_refused(row, team, learns, now)
  local entry = learns and entry_of(row, team)
  if not entry then return end
  entry.n, entry.due_ms = row.granted, now + REFUSED_LONGEST_MS
  save_entry(row, team, entry)
end

-- Puts off the next call of a team that is held after one more 429.
function delay_team(row, lease, retry_after_ms, now)
  local team = team_of(lease.ref)
  local entry = entry_of(row, team)
  if lease.n < entry.n then return end
  entry.count = entry.count + 1
  local wait_ms = math.min(REFUSED_LONGEST_MS, REFUSED_FIRST_MS * 2 ^ math.min(entry.count, 16))
  entry.due_ms = now + math.max(retry_after_ms, wait_ms)
  save_entry(row, team, entry)
end

-- Ends the hold of a team: one of the held calls was answered.
function admit_refused(row, lease)
  local team = team_of(lease.ref)
  if lease.learns and entry_of(row, team) then save_entry(row, team) end
end
