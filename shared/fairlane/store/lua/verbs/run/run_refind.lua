-- Rebuilds the bitmap of a run's fed items, if Redis has lost a part of it. Its conversations go side by side.
-- KEYS: leader clock state results jobs fed queues*
-- ARGV: now_ms epoch
-- USES: core/leader core/time core/tries run/shape
-- RETURNS: how many items are fed, which is also the run's new cursor; nil if the cursor was right, the run is not
--          running, or this is not the leader.
-- A fed item has a record, a job that was in flight, or a job in KEY.queues, which has all queues of the run.
local now = clock(ARG.now_ms, KEY.clock)
local state = redis.call('HMGET', KEY.state, 'state', 'cursor', 'items')
if not is_leader(KEY.leader, ARG.epoch, now) or state[1] ~= 'running' then return nil end
if redis.call('BITCOUNT', KEY.fed) == tonumber(state[2]) then return nil end
try_keys({ hash = { KEY.jobs, KEY.results }, list = KEY.queues })
local steps, items = steps_of_run(), tonumber(state[3])
local function mark(job)
  local item = math.floor(tonumber(job) / steps)
  if item < items then redis.call('SETBIT', KEY.fed, item, 1) end -- others are jobs of sessions
end
for _, key in ipairs({ KEY.results, KEY.jobs }) do
  for _, job in ipairs(redis.call('HKEYS', key)) do mark(job) end
end
for _, queue in ipairs(KEY.queues) do
  for _, entry in ipairs(redis.call('LRANGE', queue, 0, -1)) do mark(string.match(entry, '^%d+')) end
end
local fed = redis.call('BITCOUNT', KEY.fed)
redis.call('HSET', KEY.state, 'cursor', fed)
return fed
