-- Rejects a submitted run and keeps the reason; the run expires like a finished one.
-- KEYS: leader clock active state plan results finished done jobs run_lanes spec rows memory sessions fed runs audit
-- ARGV: now_ms epoch ref reason submitted_ms ttl_ms audit
-- USES: core/audit core/leader core/time run/close
-- RETURNS: 1 rejected, 0 already admitted or not the leader.
-- Its rows, and a spec of more than SPEC_KEPT bytes, are deleted at once.
local SPEC_KEPT = 65536 -- bytes
local now = clock(ARG.now_ms, KEY.clock)
if not is_leader(KEY.leader, ARG.epoch, now) or redis.call('EXISTS', KEY.state) == 1 then return 0 end
try_audited({ set = { KEY.active }, zset = { KEY.runs } })
redis.call('HSET', KEY.state, 'reason', ARG.reason, 'submitted_ms', ARG.submitted_ms, 'ttl_ms', ARG.ttl_ms,
  'items', 0, 'jobs', 0, 'steps', 1)
redis.call('ZADD', KEY.runs, ARG.submitted_ms, string.match(ARG.ref, '/(.*)$'))
redis.call('UNLINK', KEY.rows)
if redis.call('TYPE', KEY.spec).ok ~= 'string' or redis.call('STRLEN', KEY.spec) > SPEC_KEPT then
  redis.call('UNLINK', KEY.spec)
end
close_run(ARG.ref, 'refused', now)
audit()
return 1
