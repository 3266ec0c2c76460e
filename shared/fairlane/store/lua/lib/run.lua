-- A run's end.

-- Moves a run to a terminal state; everything it owns expires from here.
local function close_run(ref, state, now)
  redis.call('HSET', KEY.state, 'state', state, 'finished_ms', whole(now), 'in_flight', 0)
  redis.call('SREM', KEY.active, ref)
  local ttl = redis.call('HGET', KEY.state, 'ttl_ms')
  local owned = { KEY.state, KEY.plan, KEY.results, KEY.finished, KEY.done, KEY.jobs, KEY.run_lanes, KEY.spec, KEY.rows }
  for _, key in ipairs(owned) do redis.call('PEXPIRE', key, ttl) end
end
