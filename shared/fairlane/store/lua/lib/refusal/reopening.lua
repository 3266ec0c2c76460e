-- When a lane that its provider has shut counts as open again: one that was rejected, once nothing came back for long
-- enough; one whose quota is used up, when that renews.
-- GIVES: provider_shut refusals_ended earns_from
-- USES: lane/counts lane/state reported/quota

-- How long the silence after a call must last until the call counts as let through: 429s come back at once.
local function silence_ms(row)
  return math.ceil(4 * (row.refusal_ms or 100)) + 100
end

-- What shuts the lane, and until when: its quota, or, where it was blocked for longer than a moment, the outcome of a
-- single call, for which a `trial` does not wait. Else nil.
function provider_shut(row, trial, now)
  local quota_ends = quota_shut(row, now)
  if quota_ends then return 'blocked', quota_ends end
  if trial or not known(row.shut) or row.refusals < 2 or not known(row.after_ms) then return nil end
  return 'refused', row.after_ms + silence_ms(row)
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
