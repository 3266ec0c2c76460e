-- Reduces an archived run to a stub: its state and its plan, which expire as before.
-- KEYS: clock state results finished done jobs run_lanes spec rows memory sessions fed audit
-- ARGV: now_ms finished_ms audit
-- USES: core/audit core/time
-- RETURNS: 1 reduced, 2 it was already a stub, 0 there is no such run, -1 it has not ended, or ended at another time.
local state, finished_ms, archived = unpack(redis.call('HMGET', KEY.state, 'state', 'finished_ms', 'archived'))
if not state then return 0 end
if archived then return 2 end
if state == 'submitted' or state == 'running' or finished_ms ~= ARG.finished_ms then return -1 end
try_audited({})
redis.call('HSET', KEY.state, 'archived', whole(clock(ARG.now_ms, KEY.clock)))
local copied = {
  KEY.results, KEY.finished, KEY.done, KEY.jobs, KEY.run_lanes, KEY.spec, KEY.rows, KEY.memory, KEY.sessions,
  KEY.fed,
}
for _, key in ipairs(copied) do redis.call('UNLINK', key) end
audit()
return 1
