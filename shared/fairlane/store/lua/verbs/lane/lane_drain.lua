-- Empties a lane's buckets, so that no burst follows if Redis has lost the last permits.
-- KEYS: clock lane limits audit
-- ARGV: now_ms audit
-- USES: buckets/buckets core/audit core/time lane/state
-- RETURNS: 1.
try_audited({})
local now, change = clock(ARG.now_ms, KEY.clock), {}
empty_buckets(read_hash(KEY.lane), read_hash(KEY.limits), change, now)
change.ramp_ms = now
write_hash(KEY.lane, change)
audit()
return 1
