-- Lets a paused run go on: every lane on which it has had jobs is looked at again.
-- KEYS: leader state run_lanes dirty audit
-- ARGV: now_ms epoch channel audit
-- USES: time leader wake audit
-- RETURNS: 1 goes on, 0 not running, not paused, or not the leader.
local now = clock(ARG.now_ms)
if not leads(KEY.leader, ARG.epoch, now) or redis.call('HGET', KEY.state, 'state') ~= 'running' then return 0 end
if redis.call('HDEL', KEY.state, 'paused_ms') == 0 then return 0 end
redis.call('HDEL', KEY.state, 'paused_by', 'held_lanes')
for _, lane in ipairs(redis.call('SMEMBERS', KEY.run_lanes)) do wake(KEY.dirty, ARG.channel, lane) end
audit()
return 1
