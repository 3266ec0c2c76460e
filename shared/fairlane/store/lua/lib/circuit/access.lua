-- Denied access: a key that the provider does not accept, an account without money, or one call that a firewall stops.
-- A lane that answers others has access, so a denied call is a failure like others, and opens the circuit where it
-- meets every call. It parks the lane that has answered nobody yet, and the one whose probe is denied, too: that one
-- asks again by itself (circuit/hold). In a lane's hash:
--   parked, parked_n    the provider's words, and the permit of the call that parked the lane
--   denials, denied     denied calls since the last that succeeded, and their job: MANY where there are several
-- GIVES: judge_access denied_alone
-- USES: core/time lane/state
-- NEEDS: KEY.lane

local MANY = '*'

local function job_of(lease)
  return lease.ref .. '|' .. whole(lease.job)
end

-- A call that started after the one that parked the lane has succeeded: so that one's own request was denied, or the
-- provider erred. So it is with the lane's first answer, although its call may have started before: a lane that had
-- answered would not have been parked.
local function reopen(row, lane, lease)
  if not lane.parked or known(lane.answered_n) and lease.n <= (row.parked_n or math.huge) then return nil end
  redis.call('HDEL', KEY.lane, 'parked', 'parked_ms', 'retry_ms')
  lease.reopened = true
  return 'reopened'
end

-- What the end of a call shows of the lane's access: whether it counts as a failure, and the lane's news, if any. Calls
-- that were granted before an operator resumed the lane show nothing new.
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
