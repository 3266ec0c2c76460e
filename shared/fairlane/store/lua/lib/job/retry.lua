-- Another attempt of a job whose attempt ended without it: what that one costs the job, and its way back to the queue.
-- GIVES: charge_attempt requeue
-- USES: core/wake job/attempt_counts job/entry run/blame
-- NEEDS: KEY.dirty KEY.jobs ARG.channel

-- Charges a lease's job for its attempt: "nothing", an "attempt", an "unproven" or a "denied" one (lib/run/blame.lua).
-- Returns its counts, which are not saved yet.
function charge_attempt(lease, cost, now)
  local spent = attempt_counts(KEY.jobs, lease.job)
  prove_failures(spent)
  charge_failure(spent, lease, cost, now)
  return spent
end

-- Puts a lease's job back at the head of its run's retries on the lane, or behind the others there.
function requeue(lease, queue, behind)
  redis.call(behind and 'RPUSH' or 'LPUSH', queue, entry_text(lease))
  wake(KEY.dirty, ARG.channel, lease.lane .. '|' .. lease.ref)
end
