-- A call's share of a lane: the largest of its shares of what the lane's axes allow in a minute, its place among the calls
-- in flight at once being one of them. All are minutes of the lane, so that what a permit costs does not jump when now the
-- rate and now the window is what holds jobs back. Teams are charged by it (dominant resource fairness; Ghodsi et al., NSDI 2011).
-- GIVES: minutes_of held_usually share_of settle_share

local MOST_MINUTES = 1e6 -- what a provider tells may be nonsense
local UNKNOWN_PER_MINUTE = 600 -- a lane without any limit counts calls; only their ratios matter
local HELD_FIRST_MS = 1000 -- how long a call is in flight where none has ended yet
local HELD_OVER, HELD_OVER_OWN = 64, 16 -- calls over which that is averaged: a lane's, those of one kind of a run

-- For how long the lane is used up by such a call; nil where nobody knows a rate.
function minutes_of(row, limits, tokens)
  local requests = allowed(row, limits, 'requests')
  local most = requests and requests > 0 and 1 / requests or 0
  for _, axis in ipairs({ 'tokens', 'input', 'output' }) do
    local limit = allowed(row, limits, axis)
    if limit and limit > 0 then most = math.max(most, amount_on(axis, tokens) / limit) end
  end
  return most > 0 and math.min(most, MOST_MINUTES) or nil
end

-- How long calls like it are in flight: those of its run (its hash at `state`) and kind, else the lane's.
function held_usually(row, state, kind)
  return tonumber(redis.call('HGET', state, 'held:' .. kind)) or row.held_ms or HELD_FIRST_MS
end

local function learn_held(row, state, kind, held_ms)
  row.held_ms = (row.held_ms or held_ms) + (held_ms - (row.held_ms or held_ms)) / HELD_OVER
  local name = 'held:' .. kind
  local own = tonumber(redis.call('HGET', state, name)) or held_ms
  redis.call('HSET', state, name, string.format('%.1f', own + (held_ms - own) / HELD_OVER_OWN))
end

function share_of(row, limits, tokens, held_ms)
  local window = places(row, limits)
  local placed = window < math.huge and math.min(held_ms / 60000 / math.max(1, window), MOST_MINUTES) or 0
  local share = math.max(minutes_of(row, limits, tokens) or 0, placed)
  return share > 0 and share or 1 / UNKNOWN_PER_MINUTE
end

-- What a team was charged too little (or, negative, too much) for a call that took `tokens` in the end, for the scheduler
-- to take into account when it asks next, in billionths; `state` is its run's hash. One that was turned away has taken nothing.
function settle_share(row, limits, lease, tokens, state, now)
  if not lease.share then return end
  local off = -lease.share
  if tokens.input + tokens.output > 0 or lease.charged.input + lease.charged.output == 0 then
    local held_ms = math.max(1, now - lease.granted_ms)
    learn_held(row, state, lease.kind, held_ms)
    off = share_of(row, limits, tokens, held_ms) - lease.share
  end
  if math.abs(off) > 0.01 * lease.share then
    redis.call('HINCRBY', KEY.owed, team_of(lease.ref), whole(math.floor(off * 1e9 + 0.5)))
  end
end
