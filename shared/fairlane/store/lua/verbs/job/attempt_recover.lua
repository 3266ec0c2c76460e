-- Recovers a lapsed lease, or one of a silent worker: requeues its job, which fails past its retry budget.
-- KEYS: leader clock leases leased lane limits owed in_flight headroom_tokens headroom_input headroom_output dirty
--       starved active state plan results finished done jobs run_lanes spec rows memory sessions fed budget workers
--       hot*
-- ARGV: now_ms epoch channel attempt worker worker_timeout_ms max_attempts payload follow joined
-- USES: core/leader core/time job/finish_job job/lapse job/retry run/blame
-- RETURNS: 0 nothing to do, 1 requeued, 2 failed.
-- `worker` seemed silent to the scheduler. It is back if it has sent a heartbeat since, or claimed this attempt.
-- A claimed attempt costs one, because a job that kills its worker must end. KEY.hot is the job's own queue, and then
-- those of `follow` and `joined`, which are as in attempt_finish.
local now = clock(ARG.now_ms, KEY.clock)
if not is_leader(KEY.leader, ARG.epoch, now) then return 0 end
local record = redis.call('HGET', KEY.leased, ARG.attempt)
if not record then return 0 end
local lease = cjson.decode(record)
local lapsed = tonumber(redis.call('ZSCORE', KEY.leases, ARG.attempt) or 0) <= now
if not lapsed and not is_lost(lease, ARG.worker, tonumber(ARG.worker_timeout_ms), now) then return 0 end
local kinds = {
  string = { KEY.done }, list = { KEY.finished, unpack(KEY.hot) },
  set = { KEY.run_lanes, KEY.active, KEY.dirty, KEY.starved },
  hash = { KEY.state, KEY.jobs, KEY.results, KEY.memory, KEY.sessions, KEY.in_flight, KEY.owed },
}
if not end_lapsed(lease, ARG.attempt, kinds, now) then return 0 end
local spent = charge_attempt(lease, lease.worker and 'attempt' or 'nothing', now)
if spent.attempts >= tonumber(ARG.max_attempts) then
  finish_job(lease, 'failed', ARG.payload, ARG.follow, ARG.joined, { unpack(KEY.hot, 2) }, now)
  return 2
end
requeue(lease, spent, KEY.hot[1])
return 1
