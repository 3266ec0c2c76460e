-- Limits on growth: some providers reject a rate that grows too fast, whatever it is (Anthropic's acceleration limits,
-- DashScope's burst rate). Such a 429 says nothing of the level. The lane goes on at about the rate that it had, which
-- grows from there by a gentler exponent, and only the rejected call waits as long as it was told. In a lane's hash:
--   growth_rate, growth_ms, growth_slope   the most calls a minute after the latest such 429, when it came, and by how
--                                          many e-folds a minute that grows (rate/rate)
--   growth_n, growth_count                 the latest permit by then, and how many calls had ended well
--   growth_began_ms                        when the first such 429 came
-- GIVES: limits_growth learn_growth
-- USES: lane/counts lane/state rate/constants rate/rate refusal/growth_constants

-- Whether the hints of a 429 say so, on a lane whose rate is not its operator's alone.
function limits_growth(limits, hints)
  return hints.exhausted == 'growth' and limits.exact ~= 1 and limits.requests_per_minute ~= 0
end

-- Adjusts the exponent to what the rate has grown by since the 429 before, `grown`.
local function slope_after(row, grown)
  local slope = row.growth_slope
  if grown > GROWTH_MUCH then return slope * GROWTH_STEEPER end
  return grown < GROWTH_LITTLE and math.max(GROWTH_LEAST, slope * GROWTH_GENTLER) or slope
end

-- The mean rate of `count` calls over GROWTH_SPAN_MS, which providers compare a rate with. A lane whose jobs were
-- scarce has counted for less.
local function mean_rate(row, count, now)
  local span_ms = math.max(GROWTH_SPAN_MS, now - (row.requests_open_ms or now))
  return math.max(1, count - (row.requests_open or 0)) * 60000 / span_ms
end

-- The rate before the first such 429: its mean, or by Little's law half of what the lane's calls in flight show. Where
-- a burst has begun, that is too much, and what goes through in the next seconds lowers it.
local function rate_before(row, lease, count, now)
  local mean = mean_rate(row, count, now)
  if now - (row.known_ms or now) < GROWTH_SPAN_MS or not known(row.usual_ms) then return mean end
  return math.max(mean, GROWTH_HALVED * lease.inflight * 60000 / math.max(1, row.usual_ms))
end

-- Learns from such a 429, which asked to wait for `wait_ms`. Calls that started before the lane saw the one before say
-- nothing new. Nor do those of which few went through so soon after: the provider counts what it admitted before.
function learn_growth(row, lease, wait_ms, now)
  if lease.n <= (row.growth_n or 0) then return end
  local before, count = known(row.growth_rate), admitted(row, 'requests')
  local rate, level = learned_rate(row, 'requests') or START_PER_MINUTE, nil
  local ended = count - (row.inflight or 0) -- calls in flight may be rejected
  local burst = GROWTH_USED * mean_rate(row, ended, now) -- what went through of it, if one has begun
  local passed, since_ms = ended - (row.growth_count or 0), now - (row.growth_ms or now)
  if not before then
    level, row.growth_slope = math.min(GROWTH_KEPT * rate, rate_before(row, lease, count, now)), GROWTH_SLOPE
    row.growth_began_ms = now
  elseif now - (row.growth_began_ms or 0) < GROWTH_SPAN_MS and burst < GROWTH_KEPT * rate then
    level = burst
  elseif passed >= GROWTH_FEW then
    level = math.min(GROWTH_KEPT * rate, GROWTH_USED * passed * 60000 / math.max(1, since_ms))
    row.growth_slope = slope_after(row, rate / before)
  elseif since_ms >= math.max(GROWTH_SPAN_MS, wait_ms) then
    level = GROWTH_HALVED * rate
  end
  row.growth_n = row.granted
  if not level then return end
  row.growth_rate, row.growth_ms, row.growth_count = math.max(LEAST_PER_MINUTE, level), now, ended
  row.requests_level, row.requests_ms = math.min(0, row.requests_level or 0), now
end
