-- Fails the first job of a run's queue without a call: its lane is down, or refusals hold the run's jobs for its model.
-- KEYS: leader clock lane queue active state plan results finished done jobs run_lanes spec rows memory sessions fed
--       dirty hot*
-- ARGV: now_ms epoch channel ref name cause entry payload follow joined
-- USES: core/leader core/time job/entry job/finish_job run/held_models run/note_answer
-- RETURNS: 1 failed, 2 failed and the run has ended, 0 the cause is over, the entry is not the first,
--          the run is not running, or this is not the leader.
-- `name` is the lane's, `cause` is outage or refusals. KEY.hot has the queues of `follow` and `joined`, which are as in
-- attempt_finish.
local now = clock(ARG.now_ms, KEY.clock)
if not is_leader(KEY.leader, ARG.epoch, now) or redis.call('HGET', KEY.state, 'state') ~= 'running' then return 0 end
if redis.call('LINDEX', KEY.queue, 0) ~= ARG.entry then return 0 end
local entry = parse_entry(ARG.entry)
local held = ARG.cause == 'refusals' and is_ruled_out(KEY.state, entry.kind, ARG.name)
local down = ARG.cause == 'outage' and redis.call('HGET', KEY.lane, 'circuit') == 'open'
if not held and not down then return 0 end
redis.call('LPOP', KEY.queue)
local lease = { job = entry.job, ref = ARG.ref, lane = ARG.name, kind = entry.kind, learns = 1, witness = 1 }
note_answer(lease, 'none', '', '', now)
return finish_job(lease, 'failed', ARG.payload, ARG.follow, ARG.joined, KEY.hot, now) and 2 or 1
