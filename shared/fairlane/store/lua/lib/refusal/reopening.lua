-- When a lane that its provider has shut counts as open again: after 429s, once a call has met none for long enough;
-- after a quota, when it renews.
-- GIVES: provider_shut refusals_ended earns_from
-- USES: lane/counts lane/state reported/quota

-- After how many ms without a 429 a call counts as let through: 429s come back at once.
local function silence_ms(row)
  return math.ceil(4 * (row.refusal_ms or 100)) + 100
end

-- What shuts the lane, and until when; nil if nothing does. It is the quota or, after a block of more than a moment,
-- the outcome of a single call, for which a `trial` does not wait.
function provider_shut(row, trial, now)
  local quota_ends = quota_shut(row, now)
  if quota_ends then return 'blocked', quota_ends end
  if trial or not known(row.shut) or row.refusals < 2 or not known(row.after_ms) then return nil end
  return 'refused', row.after_ms + silence_ms(row)
end

-- Whether the first call since the last 429 has met none for long enough.
function refusals_ended(row, now)
  local after = known(row.shut) and known(row.after_ms)
  return after and now - after >= silence_ms(row)
end

-- From when on the bucket of a rejected axis earns again. At the end of a named wait the provider admits one call: the
-- lane has earned it by then, and no more, as the provider's bucket may hold no more.
function earns_from(row, axis, now)
  if not known(row.again_ms) then return row.blocked_ms end
  return math.max(now, math.floor(row.blocked_ms - 60000 / calls_a_minute(row, axis)))
end
