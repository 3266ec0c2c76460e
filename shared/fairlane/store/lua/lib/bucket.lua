-- Token bucket in whole numbers: a level counts units of 1/60,000,000 so that `elapsed_ms * rate_per_minute * 1000`
-- is exact and no permit is lost to rounding. A nil rate is no limit.
local UNIT = 60000000

-- Units that a bucket holds when full: `burst_ms` of its rate, at least one.
local function capacity(rate, burst_ms)
  return math.max(math.floor(rate * 1000 * burst_ms), UNIT)
end

-- The level now. A bucket that was never used is full.
local function refill(level, at_ms, rate, burst_ms, now)
  local full = capacity(rate, burst_ms)
  if not level then return full end
  return math.min(full, level + math.floor(math.max(0, now - at_ms) * rate * 1000))
end

-- Milliseconds until the level reaches `need`.
local function wait_for(level, need, rate)
  return math.max(1, math.ceil((need - level) / (rate * 1000)))
end
