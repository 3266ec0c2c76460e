-- Forgets a worker and its requests: it has ended, or the scheduler has recovered its leases.
-- KEYS: workers drains dirty
-- ARGV: channel worker
-- USES: core/wake
-- RETURNS: 1 forgotten, 0 unknown.
local known = redis.call('HDEL', KEY.workers, ARG.worker)
redis.call('HDEL', KEY.drains, ARG.worker)
if known == 1 then wake(KEY.dirty, ARG.channel, '*') end
return known
