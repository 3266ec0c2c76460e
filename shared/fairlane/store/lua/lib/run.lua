-- A run's end.
-- GIVES: close_run close_if_done

-- Moves a run to a terminal state; everything it owns expires from here.
function close_run(ref, state, now)
  redis.call('HSET', KEY.state, 'state', state, 'finished_ms', whole(now), 'in_flight', 0)
  redis.call('SREM', KEY.active, ref)
  local ttl = redis.call('HGET', KEY.state, 'ttl_ms')
  local owned = {
    KEY.state, KEY.plan, KEY.results, KEY.finished, KEY.done, KEY.jobs, KEY.run_lanes, KEY.spec, KEY.rows,
    KEY.memory, KEY.sessions,
  }
  for _, key in ipairs(owned) do redis.call('PEXPIRE', key, ttl) end
end

-- Ends a run whose rows are all known once every item and every session is over.
function close_if_done(ref, now)
  local items, over, jobs, done, open = unpack(redis.call('HMGET', KEY.state, 'items', 'items_done', 'jobs', 'jobs_done', 'open'))
  if open == '1' or tonumber(over) < tonumber(items) or tonumber(done) < tonumber(jobs) then return false end
  close_run(ref, 'completed', now)
  return true
end
