-- Forgets a worker and its requests: it has ended, or it is silent and the scheduler has recovered its leases.
-- KEYS: clock workers drains dirty
-- ARGV: now_ms channel worker worker_timeout_ms
-- USES: core/time core/tries core/wake job/silence
-- RETURNS: 1 forgotten, 0 unknown, or it is back.
-- Without `worker_timeout_ms` the worker itself calls this at its end.
local timeout_ms = tonumber(ARG.worker_timeout_ms)
if timeout_ms and not is_silent(ARG.worker, timeout_ms, clock(ARG.now_ms, KEY.clock)) then return 0 end
try_keys({ hash = { KEY.drains }, set = { KEY.dirty } })
local known = redis.call('HDEL', KEY.workers, ARG.worker)
redis.call('HDEL', KEY.drains, ARG.worker)
if known == 1 then wake(KEY.dirty, ARG.channel, '*') end
return known
