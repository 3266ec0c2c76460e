-- A permit: a job leaves its queue, its number goes up by one, and a lease says who may try it until when.
-- GIVES: next_entry lease_out

-- A run's next entry and the queue it is in: ready judges and due retries (hot) before items never tried (fresh).
function next_entry(hot, fresh)
  local entry = redis.call('LINDEX', hot, 0)
  if entry then return entry, hot end
  return redis.call('LINDEX', fresh, 0), fresh
end

-- Writes the lease of a job's next attempt. Returns its number: greater than any before it, so it fences them out.
function lease_out(lease, jobs, until_ms)
  local number, attempts, limited, handle = tried(jobs, lease.job)
  lease.number = number + 1
  note(jobs, lease.job, lease.number, attempts, limited, handle)
  local id = table.concat({ lease.ref, whole(lease.job), whole(lease.number) }, '/')
  redis.call('ZADD', KEY.leases, until_ms, id)
  redis.call('HSET', KEY.leased, id, cjson.encode(lease))
  take_off(KEY.flying, lease)
  return lease.number
end
