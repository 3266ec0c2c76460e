-- A call's dominant share of a lane (dominant resource fairness; Ghodsi et al., NSDI 2011): the largest of its shares
-- of the lane's axes and of its concurrency, in minutes of the lane. Teams are charged by it. So the price of a permit
-- does not jump when the limiting constraint changes between rate and window.
-- GIVES: lane_minutes dominant_share true_up_share take_owed
-- USES: concurrency/concurrency_limit core/time lane/limits lane/state run/state_fields team/in_flight
--       tokens/amounts
-- NEEDS: KEY.owed

local MOST_MINUTES = 1e6 -- minutes: a bound, as a provider may report nonsense
local UNKNOWN_PER_MINUTE = 600 -- calls a minute: a lane without any limit counts calls; only their ratios matter
local HELD_OVER, HELD_OVER_OWN = 64, 16 -- calls over which the time in flight is averaged: of a lane; of a run's kind

-- What the lane allows now: its axes by rate, a minute, and its calls in flight at once as `window`.
local function allowance(row, limits)
  local found = { window = concurrency_limit(row, limits) }
  for _, axis in ipairs(AXES) do
    local limit = allowed(row, limits, axis)
    if limit and limit > 0 then found[axis] = limit end
  end
  return found
end

local function minutes_of(lane, tokens)
  local most = lane.requests and 1 / lane.requests or 0
  if lane.tokens then most = math.max(most, amount_on('tokens', tokens) / lane.tokens) end
  if lane.input then most = math.max(most, tokens.input / lane.input) end
  if lane.output then most = math.max(most, tokens.output / lane.output) end
  return most > 0 and math.min(most, MOST_MINUTES) or nil
end

local function share_of(lane, tokens, held_ms)
  local placed = lane.window < math.huge and math.min(held_ms / 60000 / math.max(1, lane.window), MOST_MINUTES) or 0
  local share = math.max(minutes_of(lane, tokens) or 0, placed)
  return share > 0 and share or 1 / UNKNOWN_PER_MINUTE
end

-- What the lane allows while it grants permits: the prices of one script's permits are those of its first.
local function allowance_of(admission)
  admission.allowance = admission.allowance or allowance(admission.row, admission.limits)
  return admission.allowance
end

-- The minutes of the lane that a call of `tokens` uses up; nil if no rate is known.
function lane_minutes(admission, tokens)
  return minutes_of(allowance_of(admission), tokens)
end

local function learn_held(row, state, kind, held_ms)
  row.held_ms = (row.held_ms or held_ms) + (held_ms - (row.held_ms or held_ms)) / HELD_OVER
  local name = 'held:' .. kind
  local own = tonumber(field_of(state, name) or held_ms)
  set_field(state, name, string.format('%.1f', own + (held_ms - own) / HELD_OVER_OWN))
end

function dominant_share(admission, tokens, held_ms)
  return share_of(allowance_of(admission), tokens, held_ms)
end

-- Corrects a team's charge for a call that took `tokens` in the end: KEY.owed counts billionths of lane minutes
-- that the team was charged too little (negative: too much), which the scheduler reads with the next grant. `state`
-- is the run's hash. A rejected call has taken nothing. The correction is for the call's usage at its permit's price:
-- if the lane's limit has moved since, the team does not pay for that.
function true_up_share(row, limits, lease, tokens, state, now)
  if not lease.share then return end
  local off = -lease.share
  if tokens.input + tokens.output > 0 or lease.charged.input + lease.charged.output == 0 then
    local held_ms = math.max(1, now - lease.granted_ms)
    learn_held(row, state, lease.kind, held_ms)
    local lane = allowance(row, limits)
    local expected = share_of(lane, lease.charged, lease.held_ms or held_ms)
    off = lease.share * (share_of(lane, tokens, held_ms) / expected - 1)
  end
  if math.abs(off) > 0.01 * lease.share then
    redis.call('HINCRBY', KEY.owed, team_of(lease.ref), whole(math.floor(off * 1e9 + 0.5)))
  end
end

-- Reads and deletes the corrections since the last grant, by team.
function take_owed(key)
  local flat, owed = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do owed[flat[i]] = tonumber(flat[i + 1]) end
  if #flat > 0 then redis.call('DEL', key) end
  return owed
end
