-- Forgets a worker, and what was asked of it: it said goodbye, or the scheduler took its leases back.
-- KEYS: workers drains dirty
-- ARGV: channel worker
-- USES: wake
-- RETURNS: 1 forgotten, 0 unknown.
local known = redis.call('HDEL', KEY.workers, ARG.worker)
redis.call('HDEL', KEY.drains, ARG.worker)
if known == 1 then wake(KEY.dirty, ARG.channel, '*') end
return known
