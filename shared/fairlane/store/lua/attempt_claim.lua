-- Lets one worker start an attempt, once: any other copy of its message is stale.
-- KEYS: leases leased jobs
-- ARGV: now_ms attempt job worker lease_ms
-- USES: time
-- RETURNS: {1, attempts spent, rate limits met, ms since the grant} for the holder, {0} for a stale claim.
local record = redis.call('HGET', KEY.leased, ARG.attempt)
if not record then return { 0 } end
local lease, now = cjson.decode(record), clock(ARG.now_ms)
if lease.worker and lease.worker ~= ARG.worker then return { 0 } end
lease.worker, lease.claimed_ms = ARG.worker, lease.claimed_ms or now
redis.call('HSET', KEY.leased, ARG.attempt, cjson.encode(lease))
redis.call('ZADD', KEY.leases, now + tonumber(ARG.lease_ms), ARG.attempt)
local spent, limited = string.match(redis.call('HGET', KEY.jobs, ARG.job) or '0:0:0', ':(%d+):(%d+)$')
return { 1, tonumber(spent), tonumber(limited), now - lease.granted_ms }
