-- Ends a lease: the permit's window place is free again and whoever waited for it is told.
-- GIVES: release held free_slot

-- A slot of a worker, or a permit of all, is free: whoever waited for one is told.
function free_slot()
  for _, name in ipairs(redis.call('SMEMBERS', KEY.starved)) do wake(KEY.dirty, ARG.channel, name) end
  redis.call('DEL', KEY.starved)
end

-- `pending` counts the lane's calls in flight that hold no slot. Where nothing is in flight it is made right: an earlier
-- version, which knows of none, may have ended some.
function release(lease, id)
  redis.call('ZREM', KEY.leases, id)
  redis.call('HDEL', KEY.leased, id)
  local left = redis.call('HINCRBY', KEY.lane, 'inflight', -1)
  land(KEY.flying, lease)
  local stop, waits, pending = unpack(redis.call('HMGET', KEY.lane, 'stop', 'teams_wait', 'pending'))
  if lease.pending then redis.call('HINCRBY', KEY.lane, 'pending', -1) end
  if left <= 0 and pending then redis.call('HDEL', KEY.lane, 'pending') end
  if waits == '1' then redis.call('HSET', KEY.lane, 'teams_wait', 0) end
  if waits == '1' or stop == 'window' or stop == 'reserved' then wake(KEY.dirty, ARG.channel, lease.lane) end
  free_slot()
end

-- The lease if `worker` holds it, else nil: nobody may change anything after losing it.
function held(id, worker)
  local record = redis.call('HGET', KEY.leased, id)
  local lease = record and cjson.decode(record)
  if lease and lease.worker == worker then return lease end
  return nil
end
