-- Empties a lane's buckets, so that nothing bursts when Redis may have forgotten the last permits it granted.
-- KEYS: lane limits audit
-- ARGV: now_ms audit
-- USES: time bucket rate lane audit
-- RETURNS: 1.
local now, change = clock(ARG.now_ms), {}
empty(read(KEY.lane), read(KEY.limits), change, now)
change.ramp_ms = now
write(KEY.lane, change)
audit()
return 1
