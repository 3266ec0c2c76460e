-- The lease of a job's next attempt (lane/lease), as a permit grants it.
-- GIVES: write_lease
-- USES: core/time job/attempt_counts lane/retries team/in_flight
-- NEEDS: KEY.in_flight KEY.leased KEY.leases

-- Writes the lease with a dispatch number above all earlier ones, whose leases it so fences off.
function write_lease(row, lease, jobs, until_ms)
  local spent = attempt_counts(jobs, lease.job)
  spent.number = spent.number + 1
  lease.number = spent.number
  lease.own = whose_rejections(spent, row)
  if spent.rejected > 0 then lease.rejected_n = spent.rejected_n end
  save_attempt_counts(jobs, lease.job, spent)
  local id = table.concat({ lease.ref, whole(lease.job), whole(lease.number) }, '/')
  redis.call('ZADD', KEY.leases, until_ms, id)
  redis.call('HSET', KEY.leased, id, cjson.encode(lease))
  increment_in_flight(KEY.in_flight, lease)
end
