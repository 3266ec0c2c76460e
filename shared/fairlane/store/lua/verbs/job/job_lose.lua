-- Fails a job that Redis has lost: its run is stranded (run_stranded), and the job has no record.
-- KEYS: leader clock active state plan results finished done jobs run_lanes spec rows memory sessions fed dirty hot*
-- ARGV: now_ms epoch channel ref job lane payload follow joined
-- USES: core/leader core/time core/tries job/finish_job
-- RETURNS: 1 failed, 2 failed and the run has ended, 0 it has a record, the run is not running, or this is not the
--          leader.
-- `lane` is that of the job, '' if it is unknown. KEY.hot has the queues of `follow` and `joined`, which are as in
-- attempt_finish.
local now = clock(ARG.now_ms, KEY.clock)
if not is_leader(KEY.leader, ARG.epoch, now) or redis.call('HGET', KEY.state, 'state') ~= 'running' then return 0 end
if redis.call('GETBIT', KEY.done, ARG.job) == 1 then return 0 end
try_keys({
  list = { KEY.finished, unpack(KEY.hot) }, set = { KEY.run_lanes, KEY.active, KEY.dirty },
  hash = { KEY.jobs, KEY.results, KEY.memory, KEY.sessions },
})
local lost = { job = tonumber(ARG.job), ref = ARG.ref, lane = ARG.lane }
return finish_job(lost, 'failed', ARG.payload, ARG.follow, ARG.joined, KEY.hot, now) and 2 or 1
