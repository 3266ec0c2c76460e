-- Ends a run.
-- GIVES: close_run close_if_done
-- USES: core/time
-- NEEDS: KEY.active KEY.done KEY.fed KEY.finished KEY.jobs KEY.memory KEY.plan KEY.results KEY.rows KEY.run_lanes
--       KEY.sessions KEY.spec KEY.state

-- Moves a run to a terminal state; sets the expiry of everything that it owns.
function close_run(ref, state, now)
  redis.call('HSET', KEY.state, 'state', state, 'finished_ms', whole(now), 'in_flight', 0)
  redis.call('SREM', KEY.active, ref)
  local ttl = redis.call('HGET', KEY.state, 'ttl_ms')
  local owned = {
    KEY.state, KEY.plan, KEY.results, KEY.finished, KEY.done, KEY.jobs, KEY.run_lanes, KEY.spec, KEY.rows,
    KEY.memory, KEY.sessions, KEY.fed,
  }
  for _, key in ipairs(owned) do redis.call('PEXPIRE', key, ttl) end
end

-- Completes a run that gets no more rows once every item and every session has ended.
function close_if_done(ref, now)
  local counts = redis.call('HMGET', KEY.state, 'items', 'items_done', 'jobs', 'jobs_done', 'open')
  local items, ended, jobs, done, open = unpack(counts)
  if open == '1' or tonumber(ended) < tonumber(items) or tonumber(done) < tonumber(jobs) then return false end
  close_run(ref, 'completed', now)
  return true
end
