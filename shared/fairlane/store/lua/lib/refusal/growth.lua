-- Limits on growth: some providers reject a rate that grows too fast, at any level (Anthropic's acceleration limits,
-- DashScope's burst rate). Such a 429 shows nothing about the level. The lane stays at about its present rate, which
-- grows from there with a smaller exponent. Only the rejected call waits as long as the 429 asks. In a lane's hash:
--   growth_rate, growth_ms, growth_slope   calls a minute allowed after the latest such 429; when it came; growth
--                                          of that rate in e-folds a minute (rate/rate)
--   growth_n, growth_count                 the latest permit then, and how many calls had succeeded
--   growth_began_ms                        when the first such 429 came
-- GIVES: limits_growth learn_growth
-- USES: lane/counts lane/state rate/constants rate/rate refusal/growth_constants

-- Whether the hints of a 429 name a limit on growth, on a lane whose rate is not exactly configured.
function limits_growth(limits, hints)
  return hints.exhausted == 'growth' and limits.exact ~= 1 and limits.requests_per_minute ~= 0
end

-- Adjusts the exponent to the factor `grown` by which the rate has grown since the previous such 429.
local function slope_after(row, grown)
  local slope = row.growth_slope
  if grown > GROWTH_MUCH then return slope * GROWTH_STEEPER end
  return grown < GROWTH_LITTLE and math.max(GROWTH_LEAST, slope * GROWTH_GENTLER) or slope
end

-- The mean rate of `count` calls over GROWTH_SPAN_MS, with which providers compare a rate. It is lower if jobs were
-- scarce.
local function mean_rate(row, count, now)
  local span_ms = math.max(GROWTH_SPAN_MS, now - (row.requests_open_ms or now))
  return math.max(1, count - (row.requests_open or 0)) * 60000 / span_ms
end

-- The rate before the first such 429: its mean, or half of the rate that the calls in flight show by Little's law. In a
-- burst that is too much, and the calls that go through in the next seconds lower it.
local function rate_before(row, lease, count, now)
  local mean = mean_rate(row, count, now)
  if now - (row.known_ms or now) < GROWTH_SPAN_MS or not known(row.usual_ms) then return mean end
  return math.max(mean, GROWTH_HALVED * lease.inflight * 60000 / math.max(1, row.usual_ms))
end

-- Learns from such a 429, which asked to wait for `wait_ms`. A call that started before the lane saw the previous one
-- shows nothing new. Nor does one so soon after it that few calls went through: the provider counts what it admitted
-- before.
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
