-- Holds a run back: nothing of it starts until `run_unpause`; what is in flight ends as it may.
-- KEYS: leader state audit
-- ARGV: now_ms epoch by audit
-- USES: time leader audit
-- RETURNS: 1 paused, 0 not running, paused already, or not the leader.
local now = clock(ARG.now_ms)
if not leads(KEY.leader, ARG.epoch, now) or redis.call('HGET', KEY.state, 'state') ~= 'running' then return 0 end
if redis.call('HSETNX', KEY.state, 'paused_ms', whole(now)) == 0 then return 0 end
redis.call('HSET', KEY.state, 'paused_by', ARG.by)
audit()
return 1
