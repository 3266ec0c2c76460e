-- Finds out whether all failures of a lane are of one team's calls, which may be its own fault, as with a model that
-- always fails. In a lane's hash:
--   fail_team   '/' and the team of all failures that no later call has refuted; MANY if several teams' calls failed
--   busy_ms     until when overloads block the lane; named_ms: until when the provider asked to wait
--   trial_n     while the circuit is not closed: the permit of a call in flight of another team, which shows whether
--               the lane answers others
-- GIVES: blame blamed_team open_to_guests unblock
-- USES: lane/state team/in_flight

local MANY = '*' -- no name of a team

function blame(row, lease)
  local team, blamed = '/' .. team_of(lease.ref), known(row.fail_team)
  row.fail_team = (not blamed or blamed == team) and team or MANY
end

-- The team whose calls alone have failed; nil if there is none, or where several teams' have.
function blamed_team(row)
  local blamed = known(row.fail_team)
  return blamed and blamed ~= MANY and string.sub(blamed, 2) or nil
end

-- Until when the lane waits, without the block by overloads of one team's calls.
local function wait_until(row)
  local blocked_ms = row.blocked_ms or 0
  return blocked_ms <= (row.busy_ms or 0) and (row.named_ms or 0) or blocked_ms
end

-- Whether calls of other teams may start although `reason` shuts the lane, when one team's calls alone have failed.
-- Also returns what shuts it for them, and until when. While the circuit is open, one at a time starts: a trial.
function open_to_guests(row, reason, now)
  local by_circuit = reason == 'circuit' or reason == 'probing'
  local until_ms = wait_until(row)
  if by_circuit and not known(row.trial_n) then
    if now < until_ms then return true, 'blocked', until_ms end
    return true
  end
  return reason == 'blocked' and now >= until_ms
end

-- Ends the block by overloads of one team's calls: a later call of another team was answered.
function unblock(row)
  if (row.blocked_ms or 0) <= (row.busy_ms or 0) then row.blocked_ms = row.named_ms or 0 end
  row.streak = 0
end
