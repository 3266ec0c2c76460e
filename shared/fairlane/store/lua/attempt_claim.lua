-- Lets one worker start an attempt, once: any other copy of its message is stale.
-- KEYS: leases leased jobs
-- ARGV: now_ms attempt job worker claim lease_ms
-- USES: time tried
-- RETURNS: {1, attempts spent, rate limits met, ms since the grant, handle} for the holder, {0} for a stale claim. The handle,
--          where there is one, names a call that the provider goes on with for this job.
-- `claim` names this very request: sent again because its answer was lost, it is answered as before; a second copy
-- of the message is another claim, even at the same worker.
local record = redis.call('HGET', KEY.leased, ARG.attempt)
if not record then return { 0 } end
local lease, now = cjson.decode(record), clock(ARG.now_ms)
if lease.worker and lease.claim ~= ARG.claim then return { 0 } end
lease.worker, lease.claim, lease.claimed_ms = ARG.worker, ARG.claim, lease.claimed_ms or now
redis.call('HSET', KEY.leased, ARG.attempt, cjson.encode(lease))
redis.call('ZADD', KEY.leases, now + tonumber(ARG.lease_ms), ARG.attempt)
local _, spent, limited, handle = tried(KEY.jobs, ARG.job)
return { 1, spent, limited, now - lease.granted_ms, handle }
