-- Admits a submitted run: its rows lose their expiry, and its items can be fed.
-- KEYS: leader clock active state plan results finished done jobs run_lanes spec rows memory sessions fed runs audit
-- ARGV: now_ms epoch ref plan counts ttl_ms audit
-- USES: core/audit core/leader core/time run/close
-- RETURNS: 1 running, 2 completed at once (no items), 0 already admitted or not the leader.
-- `counts` is an object of fields: integers, or texts for the state hash: items, jobs, steps, submitted_ms,
-- known:<lane> …
local now = clock(ARG.now_ms, KEY.clock)
if not is_leader(KEY.leader, ARG.epoch, now) or redis.call('EXISTS', KEY.state) == 1 then return 0 end
local counts = cjson.decode(ARG.counts)
try_audited({ set = { KEY.active } })
redis.call('ZADD', KEY.runs, counts.submitted_ms, string.match(ARG.ref, '/(.*)$'))
redis.call('SADD', KEY.active, ARG.ref)
redis.call('HSET', KEY.state, 'state', 'running', 'cursor', 0, 'jobs_done', 0, 'items_done', 0,
  'started_ms', whole(now), 'ttl_ms', ARG.ttl_ms)
for name, value in pairs(counts) do
  redis.call('HSET', KEY.state, name, type(value) == 'number' and whole(value) or value)
end
redis.call('SET', KEY.plan, ARG.plan)
redis.call('PERSIST', KEY.spec)
redis.call('PERSIST', KEY.rows)
audit()
return close_if_done(ARG.ref, now) and 2 or 1
