-- Ends a lease: the permit's window place is free again and whoever waited for it is told.
-- GIVES: release held

function release(lease, id)
  redis.call('ZREM', KEY.leases, id)
  redis.call('HDEL', KEY.leased, id)
  redis.call('HINCRBY', KEY.lane, 'inflight', -1)
  land(KEY.flying, lease)
  local stop, waits = unpack(redis.call('HMGET', KEY.lane, 'stop', 'teams_wait'))
  if waits == '1' then redis.call('HSET', KEY.lane, 'teams_wait', 0) end
  if waits == '1' or stop == 'window' or stop == 'reserved' then wake(KEY.dirty, ARG.channel, lease.lane) end
  for _, name in ipairs(redis.call('SMEMBERS', KEY.starved)) do wake(KEY.dirty, ARG.channel, name) end
  redis.call('DEL', KEY.starved)
end

-- The lease if `worker` holds it, else nil: nobody may change anything after losing it.
function held(id, worker)
  local record = redis.call('HGET', KEY.leased, id)
  local lease = record and cjson.decode(record)
  if lease and lease.worker == worker then return lease end
  return nil
end
