-- Ends a run.
-- GIVES: close_run close_if_done
-- USES: core/time run/state_fields
-- NEEDS: KEY.active KEY.done KEY.fed KEY.finished KEY.jobs KEY.memory KEY.plan KEY.results KEY.rows KEY.run_lanes
--       KEY.sessions KEY.spec KEY.state

-- Moves a run to a terminal state, deletes its memory, and sets the expiry of all its other keys.
function close_run(ref, state, now)
  write_states()
  redis.call('HSET', KEY.state, 'state', state, 'finished_ms', whole(now), 'in_flight', 0)
  redis.call('SREM', KEY.active, ref)
  local ttl = redis.call('HGET', KEY.state, 'ttl_ms')
  local owned = {
    KEY.state, KEY.plan, KEY.results, KEY.finished, KEY.done, KEY.jobs, KEY.run_lanes, KEY.spec, KEY.rows,
    KEY.sessions, KEY.fed,
  }
  for _, key in ipairs(owned) do redis.call('PEXPIRE', key, ttl) end
  redis.call('UNLINK', KEY.memory)
end

-- Completes a run that gets no more rows once every item and every session has ended.
function close_if_done(ref, now)
  read_fields(KEY.state, 'items', 'items_done', 'jobs', 'jobs_done', 'open')
  if field_of(KEY.state, 'open') == '1' then return false end
  if tonumber(field_of(KEY.state, 'items_done')) < tonumber(field_of(KEY.state, 'items')) then return false end
  if tonumber(field_of(KEY.state, 'jobs_done')) < tonumber(field_of(KEY.state, 'jobs')) then return false end
  close_run(ref, 'completed', now)
  return true
end
