-- Finds whether a run waits for nothing: none of its jobs is queued, leased or delayed.
-- KEYS: leader clock leased delayed state queues*
-- ARGV: now_ms epoch ref
-- USES: core/leader core/time
-- RETURNS: 1 if it does, else 0, also where it does not run or this is not the leader.
-- What such a run has fed and has no record of is lost. KEY.queues has all its queues. Its calls in flight are counted
-- anew: there are none. Only the leader feeds, promotes and fails jobs, and only who holds a lease queues others: until
-- the leader does, none is queued, leased or delayed.
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
