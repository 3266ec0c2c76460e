-- Leases: the right of one worker to one attempt, and what happens when it ends.
-- GIVES: release_lease held_lease
-- USES: core/wake lane/starved models/model_calls team/in_flight
-- NEEDS: KEY.dirty KEY.in_flight KEY.lane KEY.leased KEY.leases ARG.channel

-- Ends a lease: its place in the lane's window is free again. `pending` counts the lane's calls in flight that hold
-- no slot; where nothing is in flight it is reset.
function release_lease(lease, id)
  redis.call('ZREM', KEY.leases, id)
  redis.call('HDEL', KEY.leased, id)
  local left = redis.call('HINCRBY', KEY.lane, 'inflight', -1)
  decrement_in_flight(KEY.in_flight, lease)
  end_model_call(KEY.lane, lease)
  local stop, waits, pending = unpack(redis.call('HMGET', KEY.lane, 'stop', 'teams_wait', 'pending'))
  if lease.pending then redis.call('HINCRBY', KEY.lane, 'pending', -1) end
  if left <= 0 and pending then redis.call('HDEL', KEY.lane, 'pending') end
  if waits == '1' then redis.call('HSET', KEY.lane, 'teams_wait', 0) end
  if waits == '1' or stop == 'window' or stop == 'reserved' then wake(KEY.dirty, ARG.channel, lease.lane) end
  wake_starved()
end

-- The lease if `worker` holds it, else nil: nobody may change anything after losing it.
function held_lease(id, worker)
  local record = redis.call('HGET', KEY.leased, id)
  local lease = record and cjson.decode(record)
  if lease and lease.worker == worker then return lease end
  return nil
end
