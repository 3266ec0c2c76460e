-- Detects from 429s whether a provider limits concurrent calls or a rate. A concurrency limit rejects every call that
-- meets as many calls in flight as a rejected one did. Under a rate limit, some calls go through at more. If the number
-- in flight never varies, both look alike, and the lane assumes a rate.
-- GIVES: served_suspect_concurrency suspects_concurrency
-- USES: concurrency/concurrency_floor concurrency/concurrency_trial concurrency/detector_constants lane/state
--       rate/constants rate/curve reported/window_detector

-- How many epochs in a row agree on the floor, the present one included.
local function epochs_agreeing(row)
  local low, floor = known(row.low), known(row.floor)
  if not low or not floor or math.abs(low - floor) > in_flight_error(row) then return 0 end
  return (row.floors or 0) + 1
end

-- How many epochs must agree. More if our number in flight is uncertain, as they may agree by chance, and if a steady
-- rate explains the 429s.
local function epochs_needed(row)
  local steady = row.requests_steady == 1 and STEADY_FLOORS or 1
  return steady * math.max(row.floors_wanted or FLOORS, 2 * in_flight_error(row))
end

-- Counts a 429 on a lane that assumes a rate; `new` where it began an epoch. The fewest in flight of an epoch is
-- known when the next begins. Returns whether the lane tries a concurrency limit.
function suspects_concurrency(row, lease, new)
  if not new then
    row.low = math.min(known(row.low) or lease.inflight, lease.inflight)
    return false
  end
  local low, fewest = known(row.low), known(row.floor)
  row.low = lease.inflight
  if not low then row.floor = lease.inflight end
  if not low then return false end
  if low < 2 or fewest and math.abs(low - fewest) > in_flight_error(row) then forget_floor(row) end
  if low < 2 then return false end
  row.floor, row.floors = math.min(known(row.floor) or low, low), (row.floors or 0) + 1
  if row.floors < epochs_needed(row) or refuted_floor(row) or (row.under or 0) < UNDER then return false end
  return try_concurrency(row)
end

-- Whether answered calls make the lane try a concurrency limit before the next 429: many at fewer in flight than where
-- two 429s agree, none at more, while no rate is measured. The first trial may follow the first 429, once as many calls
-- went through as were in flight then: that number is the limit, or the next 429 meets fewer.
function served_suspect_concurrency(row)
  if known(row.window) or not known(row.requests_age_ms) or known(row.shut) or has_window(row, 'requests') then
    return false
  end
  if row.requests_steady == 1 or doubt(row, 'requests') < 1.5 * SURE then return false end
  local floor = known(row.floor) or 0
  local wanted, enough = epochs_needed(row) / 2, math.max(MANY_UNDER, LATENCIES * floor)
  if not row.floors_wanted and floor < FEW_AT_ONCE then enough = LATENCIES * floor end
  if not row.floors_wanted and floor >= LEAST_FIRST then wanted, enough = 1, math.max(UNDER, floor) end
  local refuted = (row.over or 0) > 0 and (floor >= FEW_AT_ONCE or refuted_floor(row))
  if epochs_agreeing(row) < wanted or refuted or (row.under or 0) < enough then return false end
  return try_concurrency(row)
end
