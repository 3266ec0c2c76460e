-- Finds whether a run is stranded: none of its jobs is queued, leased or delayed.
-- KEYS: leader clock leased delayed state queues*
-- ARGV: now_ms epoch ref
-- USES: core/leader core/time
-- RETURNS: 1 if it is, else 0, also if it is not running or this is not the leader.
-- The fed jobs of such a run that have no record are lost. KEY.queues has all its queues. Its count of calls in flight
-- is set to 0. It stays stranded until the leader acts: only the leader feeds, promotes and fails jobs, and only the
-- holder of a lease queues others.
local now = clock(ARG.now_ms, KEY.clock)
if not is_leader(KEY.leader, ARG.epoch, now) or redis.call('HGET', KEY.state, 'state') ~= 'running' then return 0 end
for _, queue in ipairs(KEY.queues) do
  if redis.call('LLEN', queue) > 0 then return 0 end
end
local leased, waits = ARG.ref .. '/', ARG.ref .. '|'
for _, id in ipairs(redis.call('HKEYS', KEY.leased)) do
  if string.sub(id, 1, #leased) == leased then return 0 end
end
for _, member in ipairs(redis.call('ZRANGE', KEY.delayed, 0, -1)) do
  if string.sub(member, 1, #waits) == waits then return 0 end
end
redis.call('HSET', KEY.state, 'in_flight', 0)
if redis.call('HEXISTS', KEY.state, 'tasks_in_flight') == 1 then redis.call('HSET', KEY.state, 'tasks_in_flight', 0) end
return 1
