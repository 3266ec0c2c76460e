-- Fails a job without a call: the first of its run's queue on a lane, or one that waits for its retry there.
-- KEYS: leader clock lane queue delayed active state plan results finished done jobs run_lanes spec rows memory
--       sessions fed dirty hot*
-- ARGV: now_ms epoch channel ref name cause down_ms entry member payload follow joined
-- USES: core/leader core/time job/entry job/finish_job job/uncalled run/note_answer
-- RETURNS: 1 failed, 2 failed and the run has ended, 0 the cause is over, the job is not there (any more),
--          the run is not running, or this is not the leader.
-- `name` is the lane's. `cause` is outage, unanswered or refusals (lib/job/uncalled.lua); `down_ms`: since when the
-- lane is down, of an outage. `member` is that of the job in KEY.delayed, '' if it is the first of KEY.queue.
-- KEY.hot has the queues of `follow` and `joined`, which are as in attempt_finish.
local now = clock(ARG.now_ms, KEY.clock)
if not is_leader(KEY.leader, ARG.epoch, now) or redis.call('HGET', KEY.state, 'state') ~= 'running' then return 0 end
local entry = parse_entry(ARG.entry)
local kinds = {
  string = { KEY.done }, list = { KEY.finished, unpack(KEY.hot) }, set = { KEY.run_lanes, KEY.active, KEY.dirty },
  hash = { KEY.lane, KEY.jobs, KEY.results, KEY.memory, KEY.sessions },
}
if not cause_lasts(entry) or not take_uncalled(kinds) then return 0 end
local lease = { job = entry.job, ref = ARG.ref, lane = ARG.name, kind = entry.kind, learns = 1, witness = 1 }
note_answer(lease, 'none', '', '', now)
return finish_job(lease, 'failed', ARG.payload, ARG.follow, ARG.joined, KEY.hot, now) and 2 or 1
