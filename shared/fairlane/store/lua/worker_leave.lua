-- Forgets a worker: it said goodbye, or the scheduler took its leases back.
-- KEYS: workers dirty
-- ARGV: channel worker
-- USES: wake
-- RETURNS: 1 forgotten, 0 unknown.
local known = redis.call('HDEL', KEY.workers, ARG.worker)
if known == 1 then wake(KEY.dirty, ARG.channel, '*') end
return known
