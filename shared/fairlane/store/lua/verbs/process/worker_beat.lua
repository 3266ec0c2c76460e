-- Notes that a worker is alive, extends the leases it holds, and lists those it has lost.
-- KEYS: clock workers leases leased dirty
-- ARGV: now_ms channel worker info lease_ms attempts changed
-- USES: core/time core/wake
-- RETURNS: the attempts among those given that the worker no longer holds.
-- `info` (JSON) is stored behind the time of the heartbeat; `changed` is 1 if it differs from the last one's.
local now, lost = clock(ARG.now_ms, KEY.clock), {}
local known = redis.call('HSET', KEY.workers, ARG.worker, whole(now) .. ' ' .. ARG.info) == 0
if ARG.changed == '1' or not known then wake(KEY.dirty, ARG.channel, '*') end
for _, id in ipairs(cjson.decode(ARG.attempts)) do
  local record = redis.call('HGET', KEY.leased, id)
  if record and cjson.decode(record).worker == ARG.worker then
    redis.call('ZADD', KEY.leases, 'XX', now + tonumber(ARG.lease_ms), id)
  else
    lost[#lost + 1] = id
  end
end
return lost
