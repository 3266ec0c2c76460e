-- Requeues a job whose attempt has ended, at once or later.
-- GIVES: requeue
-- USES: core/wake job/attempt_counts job/entry
-- NEEDS: KEY.dirty KEY.jobs ARG.channel

-- Saves the counts of a lease's job, and puts it at the head of `queue`, its run's retries on the lane; at the end if
-- it was rejected repeatedly. With `due_ms` the job waits in the index `delayed`. If no other job is due before, this
-- wakes the scheduler.
function requeue(lease, spent, queue, delayed, due_ms)
  save_attempt_counts(KEY.jobs, lease.job, spent)
  if not due_ms then
    redis.call(spent.rejected > 1 and 'RPUSH' or 'LPUSH', queue, entry_text(lease))
    return wake(KEY.dirty, ARG.channel, lease.lane .. '|' .. lease.ref)
  end
  local member = lease.ref .. '|' .. entry_text(lease) .. '|' .. lease.lane
  redis.call('ZADD', delayed, due_ms, member)
  if redis.call('ZRANK', delayed, member) == 0 then redis.call('PUBLISH', ARG.channel, '') end
end
