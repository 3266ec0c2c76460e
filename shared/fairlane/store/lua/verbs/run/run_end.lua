-- Ends a run early: none of its calls starts, calls in flight lose their leases, and the other jobs get no record.
-- KEYS: leader clock active state plan results finished done jobs run_lanes spec rows memory sessions fed leases leased
--       dirty starved audit budget lanes*
-- ARGV: now_ms epoch channel control ref names state unfinished reason audit
-- USES: core/audit core/full core/leader core/time job/cancel_attempts run/close
-- RETURNS: the number of unfinished jobs; -1 if the run is not running or this is not the leader; -2 where the
--          run has jobs on a lane that is not in `names`.
-- `state` is the end state of the run, `unfinished` that of its jobs. `names` are lane names; KEY.lanes has the
-- lane, in flight, hot and fresh of each in turn.
local now = clock(ARG.now_ms, KEY.clock)
if not is_leader(KEY.leader, ARG.epoch, now) or redis.call('HGET', KEY.state, 'state') ~= 'running' then return -1 end

local names, lane_key, in_flight = cjson.decode(ARG.names), {}, {}
for i, name in ipairs(names) do lane_key[name], in_flight[name] = unpack(KEY.lanes, i * 4 - 3, i * 4 - 2) end
for _, name in ipairs(redis.call('SMEMBERS', KEY.run_lanes)) do
  if not lane_key[name] then return -2 end
end
try_audited({})
write_though_full(KEY.state)

cancel_attempts(ARG.ref, lane_key, in_flight, ARG.unfinished, now)
for i = 1, #names do redis.call('DEL', KEY.lanes[i * 4 - 1], KEY.lanes[i * 4]) end

local jobs, done, items = unpack(redis.call('HMGET', KEY.state, 'jobs', 'jobs_done', 'items'))
redis.call('HINCRBY', KEY.state, 'n:' .. ARG.unfinished, jobs - done)
redis.call('HSET', KEY.state, 'jobs_done', jobs, 'items_done', items, 'reason', ARG.reason)
redis.call('DEL', KEY.jobs)
close_run(ARG.ref, ARG.state, now)
redis.call('PUBLISH', ARG.control, 'cancel:' .. ARG.ref)
audit({unfinished = jobs - done})
return jobs - done
