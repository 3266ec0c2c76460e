-- Pauses a run: none of its calls starts until run_resume; calls in flight continue.
-- KEYS: leader clock state audit
-- ARGV: now_ms epoch by audit
-- USES: core/audit core/full core/leader core/time
-- RETURNS: 1 paused, 0 not running, paused already, or not the leader.
local now = clock(ARG.now_ms, KEY.clock)
if not is_leader(KEY.leader, ARG.epoch, now) or redis.call('HGET', KEY.state, 'state') ~= 'running' then return 0 end
try_audited({})
write_though_full(KEY.state)
if redis.call('HSETNX', KEY.state, 'paused_ms', whole(now)) == 0 then return 0 end
redis.call('HSET', KEY.state, 'paused_by', ARG.by)
audit()
return 1
