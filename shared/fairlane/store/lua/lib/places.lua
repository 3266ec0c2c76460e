-- How many calls a provider takes at once, told from a rate by its refusals. Under a limit of concurrency every call
-- that found as many in flight as a refused one is refused, too; under a limit of rate calls go through at more, now
-- and then. `floor` is the fewest in flight at a refusal, `low` the same in the present epoch, `floors` how many epochs
-- agreed in a row, `under` the calls that went through at clearly fewer, `over` at more. Where the number in flight
-- never varies, both look alike: the rate is believed.
-- GIVES: refused_at places_limited refused_place refutes_places served_at

local FLOORS, UNDER, NEAR, OVER = 4, 20, 0.4, 3
local RARE = 50 -- one call over for so many under is a miscount

local function forget_floor(row)
  row.floor, row.floors, row.under, row.over = '', 0, 0, 0
end

-- How far the number in flight here may be from what the provider counts: calls are on their way, and answers.
local function blur(row)
  return 1 + (known(row.requests_est) or 0) / 60000 * (row.refusal_ms or 100)
end

-- A refusal while a rate is thought to be limited; `new` where it began an epoch. An epoch's fewest in flight is known
-- at the next. Returns whether it is to be tried that places are limited: those calls at once, at any rate.
function refused_at(row, lease, new)
  if not new then
    row.low = math.min(known(row.low) or lease.inflight, lease.inflight)
    return false
  end
  local low, fewest = known(row.low), known(row.floor)
  row.low = lease.inflight
  if not low then return false end
  if low < 2 or fewest and math.abs(low - fewest) > blur(row) then forget_floor(row) end
  if low < 2 then return false end
  row.floor, row.floors = math.min(known(row.floor) or low, low), (row.floors or 0) + 1
  local against = RARE * (row.over or 0) > (row.under or 0)
  if row.floors < (row.floors_wanted or FLOORS) or against or (row.under or 0) < UNDER then return false end
  narrow(row, row.floor - 1, 'refusals')
  row.given_up = known(row.requests_est) or ''
  return true
end

function places_limited(row)
  return known(row.window) ~= nil and row.window_by == 'refusals'
end

-- A refusal for want of a place. Returns whether it began an epoch.
function refused_place(row, lease)
  if lease.n <= (row.sign or 0) then return false end
  row.sign = row.granted
  if lease.inflight < 2 then return false end
  narrow(row, math.min(known(row.window) or lease.inflight, lease.inflight - 1), 'refusals')
  return true
end

-- Whether a refusal shows that it was not places that were limited: well within the window. Then what had been learned
-- of the rate counts again, and the next such trial wants twice the evidence.
function refutes_places(row, lease, now)
  if lease.inflight >= math.min(row.window, known(row.floor) or row.window) - blur(row) then return false end
  row.window, row.floors_wanted = '', 2 * (row.floors_wanted or FLOORS)
  forget_floor(row)
  local est = known(row.given_up)
  if est then
    settle(row, 'requests', est, (0.1 * est) ^ 2, now)
    row.requests_age_ms = 0
  end
  return true
end

-- A call that went through.
function served_at(row, lease)
  local floor = known(row.floor)
  if not floor then return end
  if lease.inflight > floor + blur(row) then
    row.over = (row.over or 0) + 1
    if row.over >= OVER and RARE * row.over > (row.under or 0) then forget_floor(row) end
  elseif lease.inflight >= NEAR * floor and lease.inflight < floor - blur(row) then
    row.under = (row.under or 0) + 1
  end
end
