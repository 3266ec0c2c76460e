-- A worker's report of an attempt, as the arguments of attempt_finish and attempt_defer.
-- GIVES: reported_outcome count_late
-- USES: lane/circuit
-- NEEDS: KEY.lane KEY.state ARG.deadline_ms ARG.hints ARG.reason ARG.retry_after_ms ARG.signal ARG.used_cached
--       ARG.used_input ARG.used_output

-- {signal, used, retry_after_ms, hints, reason, too_short}; `used` is {input, output, cached} in tokens, -1 where
-- unknown. `too_short`: the run's own short deadline ended the call, so the lane learns nothing from it.
function reported_outcome()
  local used = {
    input = tonumber(ARG.used_input), output = tonumber(ARG.used_output), cached = tonumber(ARG.used_cached),
  }
  local usual_ms = tonumber(redis.call('HGET', KEY.lane, 'usual_ms') or '')
  local short = too_short({ usual_ms = usual_ms }, tonumber(ARG.deadline_ms))
  return {
    signal = short and 'none' or ARG.signal, too_short = short, used = used,
    retry_after_ms = tonumber(ARG.retry_after_ms), hints = ARG.hints, reason = ARG.reason,
  }
end

-- Counts a late report: its worker has lost the lease. The report changes nothing else.
function count_late()
  if redis.call('EXISTS', KEY.state) == 1 then redis.call('HINCRBY', KEY.state, 'late', 1) end
end
