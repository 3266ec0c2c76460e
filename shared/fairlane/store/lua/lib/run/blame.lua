-- Whose fault a failed call is. It is the lane's until the lane has answered a call that started later. From then on
-- it is the job's, and costs it an attempt, unless an outage lay between (lib/job/end_attempt.lua). So an outage
-- costs no attempt, however it begins, and a job that its provider cannot serve ends as soon as others are served, or
-- once only such jobs are left (lib/circuit/own_failures.lua).
-- GIVES: prove_failures charge_attempt charge_rejection shown_signal
-- USES: circuit/access circuit/alike circuit/own_failures job/attempt_counts job/rejections
-- NEEDS: KEY.jobs KEY.lane

-- Decides unproven failures of a lease's job, if the lane has answered a later call since: they cost attempts, or
-- nothing if they fell into the lane's last outage. The first that costs one is noted at the lane, once a lease.
function prove_failures(spent, lease)
  if spent.unproven == 0 then return end
  local answered_n, after, ended = unpack(redis.call('HMGET', KEY.lane, 'answered_n', 'outage_after', 'outage_until'))
  if tonumber(answered_n or 0) <= spent.last then return end
  local in_outage = ended and tonumber(after) < spent.last and spent.last <= tonumber(ended)
  if not in_outage then
    if spent.attempts == 0 and not lease.flawed then note_flawed() end
    spent.attempts, lease.flawed = spent.attempts + spent.unproven, true
  end
  spent.unproven, spent.last, spent.failed_ms = 0, 0, 0
end

-- Charges a lease's job for its attempt: "nothing", an "attempt", an "unproven" one, a "denied" one (an attempt where
-- this job alone is denied access, else unproven), or an "absent" one (unproven where the lane has answered before).
-- One whose request was "rejected", or is "doubtful", is an attempt where that is the row's own (circuit/alike), by
-- `refusal`; a rejected job then ends. Returns its counts, which are not saved yet; with `ends`, its attempts.
function charge_attempt(lease, cost, now, refusal)
  local spent = attempt_counts(KEY.jobs, lease.job)
  prove_failures(spent, lease)
  if cost == 'denied' then cost = denied_alone(lease) and 'attempt' or 'unproven' end
  if cost == 'absent' then cost = redis.call('HGET', KEY.lane, 'answered_n') and 'unproven' or 'attempt' end
  local rejected = cost == 'rejected'
  if rejected or cost == 'doubtful' then cost = weigh_rejection(lease, spent, refusal) end
  if cost == 'unproven' then
    local before = spent.last
    spent.unproven, spent.last = spent.unproven + 1, math.max(spent.last, lease.n, lease.alike or 0)
    if spent.failed_ms == 0 then spent.failed_ms = now end
    prove_failures(spent, lease)
    if spent.unproven > 0 then weigh_failure(spent.attempts > 0, before) end
    if spent.unproven > 0 and fails_of_its_own(now) then
      spent.attempts, spent.unproven = spent.attempts + 1, spent.unproven - 1
    end
  elseif cost == 'attempt' then
    spent.attempts = spent.attempts + 1
  end
  spent.ends = rejected and cost == 'attempt' and spent.attempts or nil
  return spent
end

-- Counts the lease's call, which was rejected, and whether its job met that alone: others were answered since it was
-- rejected before, of at least half its size. Where only rows that are always rejected are left, nobody is answered,
-- and they fail of their own.
function charge_rejection(spent, lease, now)
  local answered_n, size, odds = unpack(redis.call('HMGET', KEY.lane, 'answered_n', 'answered_size', 'row_odds'))
  local again, others = spent.rejected > 0, tonumber(answered_n or 0) > spent.rejected_n
  if again and others and spent.attempts + spent.alone == 0 then note_flawed() end
  weigh_failure(again, spent.rejected_n)
  local beside = others and 2 * tonumber(size or 0) >= size_of(lease)
  local left = tonumber(odds or 1) <= 0 and fails_of_its_own(now)
  if again and (beside or left) then spent.alone = spent.alone + 1 end
  spent.rejected, spent.rejected_n = spent.rejected + 1, lease.n
end

-- What the end of a call shows of its lane: a failure of the job's own is an answer.
function shown_signal(signal, now)
  local failed = signal == 'server_error' or signal == 'broken'
  return failed and fails_of_its_own(now) and 'answered' or signal
end
