-- Recounts the calls in flight of runs whose counts and leases disagree, as Redis has lost a part.
-- KEYS: leader clock leased dirty states*
-- ARGV: now_ms epoch channel refs
-- USES: core/leader core/time core/tries core/wake
-- RETURNS: how many runs had another count; 0 also where this is not the leader.
-- KEY.states has the states of `refs`, which are all active runs. A lost call costs its run's budget what it had
-- reserved, as one whose answer is lost does (lib/tokens/charges.lua).
local now = clock(ARG.now_ms, KEY.clock)
if not is_leader(KEY.leader, ARG.epoch, now) then return 0 end
local calls, tasks, off = {}, {}, {}
for _, id in ipairs(redis.call('HKEYS', KEY.leased)) do
  local ref = string.match(id, '^[^/]*/[^/]*')
  calls[ref] = (calls[ref] or 0) + 1
end
for i, ref in ipairs(cjson.decode(ARG.refs)) do
  local before = redis.call('HGET', KEY.states[i], 'in_flight')
  if before and tonumber(before) ~= (calls[ref] or 0) then off[#off + 1] = { KEY.states[i], ref } end
end
if #off == 0 then return 0 end

try_keys({ set = { KEY.dirty } })
for _, record in ipairs(redis.call('HVALS', KEY.leased)) do
  local lease = cjson.decode(record)
  if lease.task then tasks[lease.ref] = (tasks[lease.ref] or 0) + 1 end
end
for _, run in ipairs(off) do
  local state, ref = unpack(run)
  local by_task, lanes = unpack(redis.call('HMGET', state, 'tasks_in_flight', 'held_lanes'))
  redis.call('HSET', state, 'in_flight', calls[ref] or 0)
  if by_task then redis.call('HSET', state, 'tasks_in_flight', tasks[ref] or 0) end
  redis.call('HDEL', state, 'held_lanes')
  for lane in string.gmatch(lanes or '', '[^\n]+') do wake(KEY.dirty, ARG.channel, lane) end
end
return #off
