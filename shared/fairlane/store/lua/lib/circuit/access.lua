-- Denied access: a key that the provider does not accept, an account without money, or one call that a firewall stops.
-- On a lane that answers others, a denied call is a failure like any other, and opens the circuit if all calls fail so.
-- It parks a lane that has answered no call yet. It also parks a lane whose probe is denied, which asks again by itself
-- (circuit/hold). In a lane's hash:
--   parked, parked_n    the provider's words, and the permit of the call that parked the lane
--   denials, denied     denied calls since the last success, and their job (MANY: several)
-- GIVES: judge_access denied_alone
-- USES: core/time lane/state
-- NEEDS: KEY.lane

local MANY = '*'

local function job_of(lease)
  return lease.ref .. '|' .. whole(lease.job)
end

-- Reopens a parked lane: a call that started after the one that parked it has succeeded. Its first answer does so, too,
-- although its call may have started before: a lane that had answered would not have been parked.
local function reopen(row, lane, lease)
  if not lane.parked or known(lane.answered_n) and lease.n <= (row.parked_n or math.huge) then return nil end
  redis.call('HDEL', KEY.lane, 'parked', 'parked_ms', 'retry_ms')
  lease.reopened = true
  return 'reopened'
end

-- Judges the lane's access by the end of a call. Returns whether that is a failure, and the lane's news, if any. Calls
-- that were granted before an operator resumed the lane count for nothing.
function judge_access(row, lane, lease, signal, reason)
  if signal == 'ok' then
    if (row.denials or 0) > 0 then row.denials, row.denied = 0, '' end
    return false, reopen(row, lane, lease)
  end
  if signal ~= 'refused' or lease.granted_ms < (lane.resumed_ms or 0) then return false end
  local job, denied = job_of(lease), known(row.denied)
  row.denials = (row.denials or 0) + 1
  row.denied = (not denied or denied == job) and job or MANY
  if known(row.answered_n) and not (lease.probe and row.denials > 1) then return true end
  row.parked, row.parked_n = reason, lease.n
  return false, not lane.parked and 'parked' or nil
end

-- Whether a denied call is its own job's fault: the lane has answered others, and only this job was denied since.
function denied_alone(lease)
  local answered_n, denied = unpack(redis.call('HMGET', KEY.lane, 'answered_n', 'denied'))
  return answered_n and (not known(denied) or denied == job_of(lease))
end
