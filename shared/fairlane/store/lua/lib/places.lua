-- How many calls a provider takes at once, where that is what it limits. Two things tell it from a rate:
-- * Refusals. Under a limit of concurrency every call that found as many in flight as a refused one is refused, too.
--   Under a limit of rate calls go through at more, now and then. `floor` is the fewest in flight at a refusal,
--   `low` the same in the present epoch, `floors` how many epochs agreed in a row, `under` the calls that went through
--   at clearly fewer, `over` at more. Where the number in flight never varies, both look alike: the rate is believed.
-- * Latency, on a lane that is not refused: it grows with the calls in flight while no more of them come back a second.
local FLOORS, UNDER, NEAR, OVER = 4, 20, 0.4, 3
local RARE = 50 -- one call over for so many under is a miscount
local SAMPLES, MANY_SAMPLES = 16, 64
local KNEE, SHARP_KNEE, ROOM, EASED, LEAST_QUEUE = 2, 4, 1.25, 0.8, 4
local BASE_FALLS, BASE_RISES = 0.5, 0.02
local REFUSED_MS = 600000 -- a lane that was refused so lately is judged by its refusals alone

local function forget_floor(row)
  row.floor, row.floors, row.under, row.over = '', 0, 0, 0
end

-- How far the number in flight here may be from what the provider counts: calls are on their way, and answers.
local function blur(row)
  return 1 + (known(row.requests_est) or 0) / 60000 * (row.refusal_ms or 100)
end

-- A refusal while a rate is thought to be limited; `new` where it began an epoch. An epoch's fewest in flight is known
-- at the next. Returns whether it is to be tried that places are limited: those calls at once, at any rate.
local function refused_at(row, lease, new)
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

local function places_limited(row)
  return known(row.window) ~= nil and row.window_by == 'refusals'
end

-- A refusal for want of a place. Returns whether it began an epoch.
local function refused_place(row, lease)
  if lease.n <= (row.sign or 0) then return false end
  row.sign = row.granted
  if lease.inflight < 2 then return false end
  narrow(row, math.min(known(row.window) or lease.inflight, lease.inflight - 1), 'refusals')
  return true
end

-- Whether a refusal shows that it was not places that were limited: well within the window. Then what had been learned
-- of the rate counts again, and the next such trial wants twice the evidence.
local function refutes_places(row, lease, now)
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
local function served_at(row, lease)
  local floor = known(row.floor)
  if not floor then return end
  if lease.inflight > floor + blur(row) then
    row.over = (row.over or 0) + 1
    if row.over >= OVER and RARE * row.over > (row.under or 0) then forget_floor(row) end
  elseif lease.inflight >= NEAR * floor and lease.inflight < floor - blur(row) then
    row.under = (row.under or 0) + 1
  end
end

-- Watches the mean latency of successes, a token of output, since long answers take long. Where it has doubled, the window becomes what keeps the provider busy by
-- Little's law and some more; where that does not bring it down, it was not our calls that slowed it.
local function watch_latency(row, lease, used, now)
  if lease.granted_ms < (row.knee_ms or 0) or now < (row.last_ms or -REFUSED_MS) + REFUSED_MS then return end
  local per_token = (now - lease.granted_ms) / (FIRST_TOKEN + math.max(0, used and used.output or 0))
  local count, sum = (row.lat_n or 0) + 1, (row.lat_sum or 0) + per_token
  local places = (row.lat_places or 0) + lease.inflight
  local mean, base, from_ms = sum / count, row.lat_base or sum / count, row.lat_from_ms or now
  local slow = mean > (count < MANY_SAMPLES and SHARP_KNEE or KNEE) * base
  local early = row.lat_base and row.knee ~= 1 and not slow and count < MANY_SAMPLES
  if early or count < SAMPLES or from_ms > lease.granted_ms then
    row.lat_n, row.lat_sum, row.lat_places, row.lat_from_ms = count, sum, places, from_ms
    return
  end
  if row.knee == 1 and mean > EASED * row.knee_mean then
    base, row.knee, row.window = mean, 0, ''
  elseif slow and places / count > LEAST_QUEUE and row.stop ~= '' then
    row.knee, row.knee_ms, row.knee_mean = 1, now, mean
    narrow(row, math.ceil(places / count * base / mean * ROOM), 'latency')
  else
    row.knee = 0
  end
  row.lat_n, row.lat_sum, row.lat_places, row.lat_from_ms = 0, 0, 0, now
  row.lat_base = base + (mean < base and BASE_FALLS or BASE_RISES) * (mean - base)
end
