-- Token bucket in whole numbers: a level counts units of 1/60,000,000, of which a rate in thousandths a minute earns
-- a whole number each millisecond. So levels are exact and no permit is lost, or gained, by rounding.
-- GIVES: UNIT pace_of capacity refill wait_for

UNIT = 60000000

-- Units earned a millisecond. Thousandths only: what is finer is dropped, but 1.001 must not become 1.000.
function pace_of(per_minute)
  return math.max(1, math.floor(per_minute * 1000 + 1e-6))
end

-- Units that a bucket holds when full: `burst_ms` of its pace, at least one.
function capacity(pace, burst_ms)
  return math.max(pace * burst_ms, UNIT)
end

-- The level now, and what was earned beyond a full bucket since `at_ms`. A bucket that was never used is full.
function refill(level, at_ms, pace, burst_ms, now)
  local full = capacity(pace, burst_ms)
  if not level then return full, 0 end
  local earned = math.max(0, now - at_ms) * pace
  return math.min(full, level + earned), math.max(0, math.min(earned, level + earned - full))
end

-- Milliseconds until the level reaches `need`.
function wait_for(level, need, pace)
  return math.max(1, math.ceil((need - level) / pace))
end
