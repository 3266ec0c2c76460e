-- Whose calls a lane's failures are: what one team's calls meet may be of its own making, such as a model that always
-- fails. In a lane's hash:
--   fail_team   '/' and the team of all failures that no later call has refuted; MANY if several teams' calls failed
--   busy_ms     until when overloads block the lane, and named_ms until when the provider asked to wait
--   trial_n     while the circuit is not closed: the permit of a call in flight of another team, which shows whether
--               the lane answers others
-- GIVES: blame blamed_team passes unblock
-- USES: lane/state team/in_flight

local MANY = '*' -- no name of a team

function blame(row, lease)
  local team, blamed = '/' .. team_of(lease.ref), known(row.fail_team)
  row.fail_team = (not blamed or blamed == team) and team or MANY
end

-- The team whose calls alone have failed; nil where there is none, or where several teams' have.
function blamed_team(row)
  local blamed = known(row.fail_team)
  return blamed and blamed ~= MANY and string.sub(blamed, 2) or nil
end

-- Until when the lane waits for more than the overloads that one team's calls met.
local function asked_until(row)
  local blocked_ms = row.blocked_ms or 0
  return blocked_ms <= (row.busy_ms or 0) and (row.named_ms or 0) or blocked_ms
end

-- Whether calls of other teams may start although `reason` shuts the lane, where the calls of one team alone have
-- failed. Also what shuts it for them, until when. While the circuit is open one at a time does: it is a trial.
function passes(row, reason, now)
  local by_circuit = reason == 'circuit' or reason == 'probing'
  local until_ms = asked_until(row)
  if by_circuit and not known(row.trial_n) then
    if now < until_ms then return true, 'blocked', until_ms end
    return true
  end
  return reason == 'blocked' and now >= until_ms
end

-- Ends the block by overloads that one team's calls met: a later call of another team was answered.
function unblock(row)
  if (row.blocked_ms or 0) <= (row.busy_ms or 0) then row.blocked_ms = row.named_ms or 0 end
  row.streak = 0
end
