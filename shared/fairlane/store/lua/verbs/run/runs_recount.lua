-- Recounts the calls in flight of runs whose counts and leases disagree, as Redis has lost a part.
-- KEYS: leader clock leased dirty states*
-- ARGV: now_ms epoch channel refs
-- USES: core/leader core/time core/tries core/wake
-- RETURNS: how many runs had another count; 0 also where this is not the leader.
-- KEY.states has the states of `refs`, which are all active runs. A lost call costs its run's budget what it had
-- reserved, as one whose answer is lost does (lib/tokens/charges.lua).
local now = clock(ARG.now_ms, KEY.clock)
if not is_leader(KEY.leader, ARG.epoch, now) then return 0 end
local refs, sum = cjson.decode(ARG.refs), 0
for i in ipairs(refs) do sum = sum + (tonumber(redis.call('HGET', KEY.states[i], 'in_flight') or '') or 0) end
if sum == redis.call('HLEN', KEY.leased) then return 0 end

try_keys({ set = { KEY.dirty } })
local calls, tasks, off = {}, {}, 0
for _, record in ipairs(redis.call('HVALS', KEY.leased)) do
  local lease = cjson.decode(record)
  calls[lease.ref] = (calls[lease.ref] or 0) + 1
  if lease.task then tasks[lease.ref] = (tasks[lease.ref] or 0) + 1 end
end
for i, ref in ipairs(refs) do
  local state, held = KEY.states[i], calls[ref] or 0
  local before, by_task, lanes = unpack(redis.call('HMGET', state, 'in_flight', 'tasks_in_flight', 'held_lanes'))
  if before and tonumber(before) ~= held then
    off = off + 1
    redis.call('HSET', state, 'in_flight', held)
    if by_task then redis.call('HSET', state, 'tasks_in_flight', tasks[ref] or 0) end
    redis.call('HDEL', state, 'held_lanes')
    for lane in string.gmatch(lanes or '', '[^\n]+') do wake(KEY.dirty, ARG.channel, lane) end
  end
end
return off
