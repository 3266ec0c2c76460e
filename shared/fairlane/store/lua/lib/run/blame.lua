-- Decides whose fault a failed call is: the lane's, until the lane has answered a later call. Then it is the job's, and
-- costs it an attempt, unless an outage lay between (lib/job/end_attempt.lua). So an outage costs no attempt, however
-- it begins. A job that its provider cannot serve ends as soon as others are served, or once only such jobs are left
-- (lib/circuit/own_failures.lua).
-- GIVES: prove_failures charge_attempt charge_rejection shown_signal
-- USES: circuit/access circuit/alike circuit/own_failures job/attempt_counts job/rejections
-- NEEDS: KEY.jobs KEY.lane

-- Decides unproven failures of a lease's job, if the lane has answered a later call: they cost attempts, or nothing if
-- they fell into the lane's last outage. Counts the job at the lane when its first failure costs one, once a lease.
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

-- Charges a lease's job for its attempt. `cost`: "nothing"; "attempt"; "unproven"; "denied" (an attempt if only this
-- job is denied access, else unproven); "absent" (unproven if the lane has answered before); "rejected" or "doubtful"
-- (an attempt if `refusal` is the row's own fault (circuit/alike), after which a rejected job ends). Returns its
-- counts, which are not saved yet; with `ends`, its attempts.
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

-- Counts a rejection of the lease's call, and whether its job met it alone: since its previous rejection, others of at
-- least half its size were answered. If only rows are left that are always rejected, nobody is answered: each further
-- rejection is then their own.
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

-- The signal that the end of a call is to its lane: a failure that is the job's own counts as an answer.
function shown_signal(signal, now)
  local failed = signal == 'server_error' or signal == 'broken'
  return failed and fails_of_its_own(now) and 'answered' or signal
end
