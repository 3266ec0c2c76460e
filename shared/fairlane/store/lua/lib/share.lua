-- A call's share of a lane: the largest of its shares of what the lane's axes allow in a minute, or of its window where
-- that is what holds jobs back. Teams are charged by it (dominant resource fairness; Ghodsi et al., NSDI 2011).
-- GIVES: minutes_of share_of settle_share

local UNKNOWN_PER_MINUTE = 600 -- a lane without any limit counts calls; only their ratios matter

-- For how long the lane is used up by such a call; nil where nobody knows a rate.
function minutes_of(row, limits, tokens)
  local requests = allowed(row, limits, 'requests')
  local most = requests and requests > 0 and 1 / requests or 0
  for _, axis in ipairs({ 'tokens', 'input', 'output' }) do
    local limit = allowed(row, limits, axis)
    if limit and limit > 0 then most = math.max(most, amount_on(axis, tokens) / limit) end
  end
  return most > 0 and most or nil
end

function share_of(row, limits, tokens)
  local window = places(row, limits)
  if row.stop == 'window' and window < math.huge then return 1 / window end
  return minutes_of(row, limits, tokens) or 1 / UNKNOWN_PER_MINUTE
end

-- What a team was charged too little (or, negative, too much) for a call that took `tokens` in the end, for the scheduler
-- to take into account when it asks next.
function settle_share(row, limits, lease, tokens)
  if not lease.share then return end
  local off = share_of(row, limits, tokens) - lease.share
  if tokens.input == 0 and tokens.output == 0 and lease.charged.input + lease.charged.output > 0 then off = -lease.share end
  if math.abs(off) > 0.01 * lease.share then
    redis.call('HINCRBYFLOAT', KEY.owed, team_of(lease.ref), string.format('%.9g', off))
  end
end
