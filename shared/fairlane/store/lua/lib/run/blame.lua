-- Whose fault a failed call is. It is the lane's until the lane has answered a call that started later. From then on
-- it is the job's, and costs it an attempt, unless an outage lay between (lib/job/end_attempt.lua). So an outage
-- costs no attempt, however it begins, and a job that its provider cannot serve ends as soon as others are served. Or
-- once nobody else calls: where all failures are of jobs that failed before while others were answered, the last rows
-- of a run are to blame rather than an outage that began with them. In a lane's hash:
--   blameless_n   the latest permit of a failed call whose job had not failed so before
-- GIVES: prove_failures charge_failure
-- USES: circuit/access
-- NEEDS: KEY.lane

local LAST_ROWS_MS = 300000 -- ms for which the lane must be down then: most outages are over by that time

-- Decides unproven failures of a job, if the lane has answered a later call since: they cost attempts, or nothing if
-- they fell into the lane's last outage.
function prove_failures(spent)
  if spent.unproven == 0 then return end
  local answered_n, after, ended = unpack(redis.call('HMGET', KEY.lane, 'answered_n', 'outage_after', 'outage_until'))
  if tonumber(answered_n or 0) <= spent.last then return end
  local in_outage = ended and tonumber(after) < spent.last and spent.last <= tonumber(ended)
  spent.attempts = spent.attempts + (in_outage and 0 or spent.unproven)
  spent.unproven, spent.last = 0, 0
end

-- Whether a failed call of a job that has failed before is its own failure although nobody was answered since.
local function fails_last(spent, lease, now)
  if spent.attempts == 0 then
    redis.call('HSET', KEY.lane, 'blameless_n', lease.n)
    return false
  end
  local circuit, down_ms, blameless_n, answered_n =
    unpack(redis.call('HMGET', KEY.lane, 'circuit', 'down_ms', 'blameless_n', 'answered_n'))
  local down = circuit and circuit ~= 'closed' and now - tonumber(down_ms or now) >= LAST_ROWS_MS
  return down and tonumber(blameless_n or 0) <= tonumber(answered_n or 0)
end

-- Charges a job for a failed call: "nothing", an "attempt", an "unproven" one, a "denied" one (an attempt where this
-- job alone is denied access, else unproven), or an "absent" one (unproven where the lane has answered before).
function charge_failure(spent, lease, cost, now)
  if cost == 'denied' then cost = denied_alone(lease) and 'attempt' or 'unproven' end
  if cost == 'absent' then cost = redis.call('HGET', KEY.lane, 'answered_n') and 'unproven' or 'attempt' end
  if cost == 'unproven' and fails_last(spent, lease, now) then cost = 'attempt' end
  if cost == 'unproven' then
    spent.unproven, spent.last = spent.unproven + 1, math.max(spent.last, lease.n)
    prove_failures(spent)
  elseif cost == 'attempt' then
    spent.attempts = spent.attempts + 1
  end
end
