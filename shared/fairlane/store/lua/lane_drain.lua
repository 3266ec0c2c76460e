-- Empties a lane's buckets, so that nothing bursts when Redis may have forgotten the last permits it granted.
-- KEYS: lane
-- ARGV: now_ms
-- USES: time
-- RETURNS: 1.
local now = whole(clock(ARG.now_ms))
redis.call('HSET', KEY.lane, 'request_level', 0, 'request_ms', now, 'token_level', 0, 'token_ms', now)
return 1
