-- Requeues the job of an ended attempt.
-- GIVES: requeue
-- USES: core/wake run/entry
-- NEEDS: KEY.dirty ARG.channel

-- Puts a lease's job back at the head of its run's work on the lane.
function requeue(lease, queue)
  redis.call('LPUSH', queue, entry_text(lease))
  wake(KEY.dirty, ARG.channel, lease.lane .. '|' .. lease.ref)
end
