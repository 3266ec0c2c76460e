-- Empties a lane's buckets, so that nothing bursts when Redis may have forgotten the last permits it granted.
-- KEYS: lane limits
-- ARGV: now_ms
-- USES: time bucket lane
-- RETURNS: 1.
local change = {}
empty(read(KEY.lane), read(KEY.limits), change, clock(ARG.now_ms))
write(KEY.lane, change)
return 1
