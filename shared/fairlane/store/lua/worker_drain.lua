-- Asks a worker to take nothing new, to end once it is idle, or to work again; it looks with every beat.
-- KEYS: workers drains audit
-- ARGV: control worker wish audit
-- USES: time audit
-- RETURNS: 1 asked, 0 no such worker.
-- The wish goes when the worker leaves; the worker itself remembers it.
if redis.call('HEXISTS', KEY.workers, ARG.worker) == 0 then return 0 end
redis.call('HSET', KEY.drains, ARG.worker, ARG.wish)
audit({wish = ARG.wish})
redis.call('PUBLISH', ARG.control, 'drain')
return 1
