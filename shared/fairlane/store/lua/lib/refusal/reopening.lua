-- When a lane that was rejected counts as open again: once its provider was silent for long enough.
-- GIVES: trial_until refusals_ended earns_from
-- USES: lane/counts lane/state

-- How long the silence after a call must last until the call counts as let through: 429s come back at once.
local function silence_ms(row)
  return math.ceil(4 * (row.refusal_ms or 100)) + 100
end

-- Until when the lane waits for the outcome of a single call, where it was blocked for longer than a moment; else
-- nil.
function trial_until(row)
  if not known(row.shut) or row.refusals < 2 or not known(row.after_ms) then return nil end
  return row.after_ms + silence_ms(row)
end

-- Whether the provider was silent for long enough after the first call since the last 429.
function refusals_ended(row, now)
  local after = known(row.shut) and known(row.after_ms)
  return after and now - after >= silence_ms(row)
end

-- From when on the bucket of a rejected axis earns again. Where the provider names the wait, it admits one call at its
-- end: the lane has earned that call by then, and no more, as the provider's bucket may hold no more.
function earns_from(row, axis, now)
  if not known(row.again_ms) then return row.blocked_ms end
  return math.max(now, math.floor(row.blocked_ms - 60000 / calls_a_minute(row, axis)))
end
