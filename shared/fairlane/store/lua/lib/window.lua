-- How many calls a provider takes at once, where that is what it limits. Two things tell it from a rate:
-- * Refusals. Under a limit of concurrency every call that found as many in flight as a refused one is refused, too.
--   Under a limit of rate calls go through at more, now and then. `floor` is the fewest in flight at a refusal,
--   `floors` how many epochs agreed in a row, `under` the calls that went through at clearly fewer, `over` at more. Where the
--   number in flight never varies, both would look alike, and the rate is believed.
-- * Latency, where calls queue instead: it grows with the calls in flight while no more of them come back a second.
local FLOORS, UNDER, NEAR, OVER = 4, 20, 0.4, 3
local PROBE_MS = 30000 -- a saturated window is widened this often: by one, two, four … until a refusal
local SAMPLES, MANY_SAMPLES = 16, 64
local KNEE, SHARP_KNEE, ROOM, EASED, LEAST_QUEUE = 2, 4, 1.25, 0.8, 4
local BASE_FALLS, BASE_RISES = 0.5, 0.02
local FIRST_TOKEN = 20 -- the wait for an answer's first token is worth about so many more

local function narrow(row, places)
  row.window, row.window_age_ms, row.window_step = math.max(1, places), 0, 1
end

local function forget_floor(row)
  row.floor, row.floors, row.under, row.over = '', 0, 0, 0
end

-- How far the number in flight here may be from what the provider counts: calls are on their way, and answers.
local function blur(row)
  return 1 + (known(row.requests_est) or 0) / 60000 * (row.refusal_ms or 100)
end

-- A refusal that began an epoch, of a call that made it `lease.inflight` in flight. Returns whether places, not rate,
-- are what is limited.
local function refused_at(row, lease)
  local floor = known(row.floor)
  if floor and not known(row.window) and math.abs(lease.inflight - floor) > blur(row) then
    forget_floor(row)
    floor = nil
  end
  row.floor, row.floors = math.min(floor or lease.inflight, lease.inflight), (row.floors or 0) + 1
  if known(row.window) then
    if row.floors > 2 * FLOORS then -- it goes on, however few are in flight
      row.window = ''
      forget_floor(row)
      return false
    end
    narrow(row, math.min(row.window, lease.inflight - 1))
    return true
  end
  if row.floors < FLOORS or (row.over or 0) > 0 or (row.under or 0) < UNDER then return false end
  narrow(row, row.floor - 1)
  row.floors = 0
  return true
end

-- A refusal that the provider itself says is for want of a place. Returns whether it began an epoch.
local function refused_place(row, lease)
  if lease.n <= (row.sign or 0) then return false end
  row.sign = row.granted
  narrow(row, math.min(known(row.window) or lease.inflight, lease.inflight - 1))
  return true
end

-- A call that went through.
local function served_at(row, lease)
  local floor = known(row.floor)
  if not floor then return end
  if lease.inflight > floor + blur(row) then
    row.over = (row.over or 0) + 1
    if row.over >= OVER then forget_floor(row) end
  elseif lease.inflight >= NEAR * floor and lease.inflight < floor - blur(row) then
    row.under = (row.under or 0) + 1
  end
end

-- Widens a window that has held jobs back for a while.
local function widen(row, elapsed_ms)
  if not known(row.window) then return end
  row.window_age_ms = row.window_age_ms + elapsed_ms
  if row.window_age_ms < PROBE_MS then return end
  row.window, row.window_age_ms = row.window + row.window_step, 0
  row.window_step, row.floors = math.min(2 * row.window_step, row.window), 0
end

-- Watches the mean latency of successes, a token of output, since long answers take long. Where it has doubled, the window becomes what keeps the provider busy by
-- Little's law and some more; where that does not bring it down, it was not our calls that slowed it.
local function watch_latency(row, lease, used, now)
  if lease.granted_ms < (row.knee_ms or 0) then return end
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
    narrow(row, math.ceil(places / count * base / mean * ROOM))
  else
    row.knee = 0
  end
  row.lat_n, row.lat_sum, row.lat_places, row.lat_from_ms = 0, 0, 0, now
  row.lat_base = base + (mean < base and BASE_FALLS or BASE_RISES) * (mean - base)
end

-- The most calls in flight at once.
local function places(row, limits)
  local learned = not (limits.exact == 1 and limits.max_concurrency) and known(row.window) or math.huge
  return math.min(limits.max_concurrency or math.huge, learned, known(row.places_told) or math.huge)
end
