-- Detects from 429s whether a provider limits concurrent calls or a rate. Under a limit of concurrency the provider
-- rejects every call that meets as many calls in flight as a rejected one did. Under a limit of rate some calls go
-- through at more. `floor` is the fewest in flight at a 429, `low` the same in the present epoch, `floors` how many
-- epochs agreed in a row, `under` the calls that went through at clearly fewer, `over` at more. Where the number in
-- flight never varies, both look alike, and the lane assumes a rate.
-- GIVES: served_suspect_concurrency suspects_concurrency concurrency_limited concurrency_refused refutes_concurrency
--        count_served
-- USES: lane/concurrency_limit lane/constants lane/curve lane/detector_constants lane/limit_estimator lane/state
--       lane/window_detector

local function forget_floor(row)
  row.floor, row.floors, row.under, row.over = '', 0, 0, 0
end

-- By how much our number in flight may differ from the provider's: calls are on their way, and answers.
local function blur(row)
  return 1 + (known(row.requests_est) or 0) / 60000 * (row.refusal_ms or 100)
end

-- How many epochs in a row agree on the floor, the present one included.
local function agreeing(row)
  local low, floor = known(row.low), known(row.floor)
  if not low or not floor or math.abs(low - floor) > blur(row) then return 0 end
  return (row.floors or 0) + 1
end

-- How many epochs must agree: more where our number in flight is blurred, so that they agree by chance, and where a
-- steady rate explains the 429s.
local function wanted_floors(row)
  local steady = row.requests_steady == 1 and STEADY_FLOORS or 1
  return steady * math.max(row.floors_wanted or FLOORS, 2 * blur(row))
end

-- Begins a trial: so many calls at once, at any rate.
local function try_concurrency(row)
  narrow_window(row, row.floor - 1, 'refusals')
  row.unprovoked, row.given_up = 0, known(row.requests_est) or ''
  return true
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
  if low < 2 or fewest and math.abs(low - fewest) > blur(row) then forget_floor(row) end
  if low < 2 then return false end
  row.floor, row.floors = math.min(known(row.floor) or low, low), (row.floors or 0) + 1
  local against = RARE * (row.over or 0) > (row.under or 0)
  if row.floors < wanted_floors(row) or against or (row.under or 0) < UNDER then return false end
  return try_concurrency(row)
end

-- Whether calls that went through make the lane try a concurrency limit before the next 429: many at fewer in flight
-- than where two 429s agree, none at more, while no rate is measured. The first trial follows the first
-- 429, once as many calls went through as were in flight at it: that number is the limit, or the next 429 meets fewer.
function served_suspect_concurrency(row)
  if known(row.window) or not known(row.requests_age_ms) or known(row.shut) or has_window(row, 'requests') then
    return false
  end
  if row.requests_steady == 1 or doubt(row, 'requests') < 1.5 * SURE then return false end
  local floor = known(row.floor) or 0
  local wanted, enough = wanted_floors(row) / 2, math.max(MANY_UNDER, LATENCIES * floor)
  if not row.floors_wanted and floor >= LEAST_FIRST then wanted, enough = 1, math.max(UNDER, floor) end
  if agreeing(row) < wanted or (row.over or 0) > 0 or (row.under or 0) < enough then return false end
  return try_concurrency(row)
end

function concurrency_limited(row)
  return known(row.window) ~= nil and row.window_by == 'refusals'
end

-- A 429 because too many calls were in flight. Returns whether it began an epoch.
function concurrency_refused(row, lease)
  if lease.n <= (row.sign or 0) then return false end
  row.sign = row.granted
  if lease.inflight < 2 then return false end
  row.unprovoked = known(row.window_base) and 0 or (row.unprovoked or 0) + 1
  narrow_window(row, math.min(known(row.window) or lease.inflight, lease.inflight - 1), 'refusals')
  return true
end

-- Whether a 429 refutes the concurrency limit: one well within the window, or one more than it takes to measure the
-- limit while the window was not widened. Then the learned rate counts again, and the next trial needs twice the
-- evidence.
function refutes_concurrency(row, lease, now)
  local within = lease.inflight < math.min(row.window, known(row.floor) or row.window) - blur(row)
  local unprovoked = not known(row.window_base) and (row.unprovoked or 0) >= UNPROVOKED + math.floor(blur(row) / 2)
  if not within and not unprovoked then return false end
  row.window, row.unprovoked, row.floors_wanted = '', 0, 2 * (row.floors_wanted or FLOORS)
  forget_floor(row)
  local est = known(row.given_up)
  if est then
    set_estimate(row, 'requests', est, (0.1 * est) ^ 2, now)
    row.requests_age_ms = 0
  end
  return true
end

-- Counts a call that went through.
function count_served(row, lease)
  local floor = known(row.floor)
  if not floor then return end
  if lease.inflight > floor + blur(row) then
    row.over = (row.over or 0) + 1
    if row.over >= OVER and RARE * row.over > (row.under or 0) then forget_floor(row) end
  elseif lease.inflight >= NEAR * floor and lease.inflight < floor - blur(row) then
    row.under = (row.under or 0) + 1
  end
end
