-- Leases: the right of one worker to one attempt, and what happens when it ends.
-- GIVES: release_lease held_lease
-- USES: core/wake lane/starved models/model_calls team/in_flight
-- NEEDS: KEY.dirty KEY.in_flight KEY.lane KEY.leased KEY.leases ARG.channel

-- Ends a lease whose call is out of the window of its lane, `row`; wakes the lane if a call is `awaited`. `pending`
-- counts the lane's calls in flight that hold no slot; it is reset if nothing is in flight.
function release_lease(lease, id, row, awaited)
  redis.call('ZREM', KEY.leases, id)
  redis.call('HDEL', KEY.leased, id)
  decrement_in_flight(KEY.in_flight, lease)
  end_model_call(KEY.lane, lease)
  if lease.pending then redis.call('HINCRBY', KEY.lane, 'pending', -1) end
  if row.inflight <= 0 and row.pending then redis.call('HDEL', KEY.lane, 'pending') end
  if awaited then wake(KEY.dirty, ARG.channel, lease.lane) end
  wake_starved()
end

-- The lease if `worker` holds it, else nil: nobody may change anything after losing it.
function held_lease(id, worker)
  local record = redis.call('HGET', KEY.leased, id)
  local lease = record and cjson.decode(record)
  if lease and lease.worker == worker then return lease end
  return nil
end
