-- Moves a job whose delay has ended to its lane's work; once, and only while its run is running.
-- KEYS: clock delayed state hot dirty
-- ARGV: now_ms member entry lane ref channel
-- USES: core/time core/tries core/wake
-- RETURNS: 1 promoted, 0 not due, gone, or its run has ended.
local due = redis.call('ZSCORE', KEY.delayed, ARG.member)
if not due or tonumber(due) > clock(ARG.now_ms, KEY.clock) then return 0 end
local state = redis.call('HGET', KEY.state, 'state')
try_keys({ list = { KEY.hot }, set = { KEY.dirty } })
redis.call('ZREM', KEY.delayed, ARG.member)
if state ~= 'running' then return 0 end
redis.call('RPUSH', KEY.hot, ARG.entry)
wake(KEY.dirty, ARG.channel, ARG.lane .. '|' .. ARG.ref)
return 1
