-- Asks a worker to take no new calls, to end once idle, or to work again; it reads the request with each heartbeat.
-- KEYS: workers drains audit
-- ARGV: control worker request audit
-- USES: core/audit
-- RETURNS: 1 requested, 0 no such worker.
-- The request is deleted when the worker leaves; the worker itself remembers it.
if redis.call('HEXISTS', KEY.workers, ARG.worker) == 0 then return 0 end
try_audited({})
redis.call('HSET', KEY.drains, ARG.worker, ARG.request)
audit({request = ARG.request})
redis.call('PUBLISH', ARG.control, 'drain')
return 1
