-- Ends a run before its time: nothing of it starts any more, what is in flight loses its lease, the rest needs no record.
-- KEYS: leader active state plan results finished done jobs run_lanes spec rows memory sessions leases leased dirty starved audit budget lanes*
-- ARGV: now_ms epoch channel control ref names state unfinished reason audit
-- USES: time leader wake run audit settle flying
-- RETURNS: the number of jobs that were not over; -1 where the run is not running or this is not the leader; -2 where the run
--          has jobs on a lane that is not named.
-- `state` is what becomes of the run, `unfinished` of its jobs. `names` are lane names; KEY.lanes has the lane, flying, hot and fresh of each in turn.
local now = clock(ARG.now_ms)
if not leads(KEY.leader, ARG.epoch, now) or redis.call('HGET', KEY.state, 'state') ~= 'running' then return -1 end

local names, lane_key, flying = cjson.decode(ARG.names), {}, {}
for i, name in ipairs(names) do lane_key[name], flying[name] = unpack(KEY.lanes, i * 4 - 3, i * 4 - 2) end
for _, name in ipairs(redis.call('SMEMBERS', KEY.run_lanes)) do
  if not lane_key[name] then return -2 end
end
for i = 1, #names do redis.call('DEL', KEY.lanes[i * 4 - 1], KEY.lanes[i * 4]) end

local records = redis.call('HGETALL', KEY.jobs)
for i = 1, #records, 2 do
  local id = ARG.ref .. '/' .. records[i] .. '/' .. string.match(records[i + 1], '^%d+')
  local record = redis.call('HGET', KEY.leased, id)
  if record then
    local lease = cjson.decode(record)
    redis.call('ZREM', KEY.leases, id)
    redis.call('HDEL', KEY.leased, id)
    redis.call('HINCRBY', lane_key[lease.lane], 'inflight', -1)
    if lease.pending then redis.call('HINCRBY', lane_key[lease.lane], 'pending', -1) end
    land(flying[lease.lane], lease)
    if lease.probe then redis.call('HSET', lane_key[lease.lane], 'circuit', 'open', 'open_ms', whole(now)) end
    settle_budget(KEY.budget, lease, 'none', lease.worker and { input = -1, output = -1 } or nil)
    wake(KEY.dirty, ARG.channel, lease.lane)
  end
end
for _, name in ipairs(redis.call('SMEMBERS', KEY.starved)) do wake(KEY.dirty, ARG.channel, name) end
redis.call('DEL', KEY.starved)

local jobs, done, items = unpack(redis.call('HMGET', KEY.state, 'jobs', 'jobs_done', 'items'))
redis.call('HINCRBY', KEY.state, 'n:' .. ARG.unfinished, jobs - done)
redis.call('HSET', KEY.state, 'jobs_done', jobs, 'items_done', items, 'reason', ARG.reason)
redis.call('DEL', KEY.jobs)
close_run(ARG.ref, ARG.state, now)
redis.call('PUBLISH', ARG.control, 'cancel:' .. ARG.ref)
audit({unfinished = jobs - done})
return jobs - done
