-- Detects a concurrency limit of a provider that queues calls instead of rejecting them: latency grows with the calls
-- in flight, while no more answers come back a second. In a lane's hash:
--   lat_base, lat_usual      how much slower than their kind its calls usually are, and how many are in flight then
--   lat_n, lat_sum, lat_places, lat_from_ms   calls since a time, the sums of their slowness and of the calls in flight
-- GIVES: watch_latency
-- USES: concurrency/detector_constants concurrency/latency_window concurrency/slowness lane/state

-- Whether a success says nothing: it started before the last change of the window or while Redis was away, or the
-- lane was rejected lately.
local function says_nothing(row, lease, now)
  if lease.granted_ms < math.max(row.knee_ms or 0, row.ramp_ms or 0) then return true end
  return not narrowed(row) and now < (row.last_ms or -REFUSED_LATELY_MS) + REFUSED_LATELY_MS
end

-- Whether so many calls decide: few where a window holds calls back, so that it is widened soon. A window that is tried
-- has helped only after two calls in each of its places, since the quick ones end first: until then few may refute it.
local function enough(row, count, mean, slow)
  if narrowed(row) then
    local helps = row.knee == 1 and mean <= EASED * row.knee_mean
    return count >= math.max(LEAST_SAMPLES, helps and 2 * row.window or math.min(SAMPLES, row.window))
  end
  return count >= ((slow or not row.lat_base) and SAMPLES or MANY_SAMPLES)
end

-- Whether slow calls queue. Then latency has grown no more than the calls in flight: where it has, the provider, the
-- network or a worker stood still. And where a rate limits the lane, ever more calls are in flight: where they are not,
-- the provider keeps up with that rate.
local function queues(row, in_flight, slowdown)
  if in_flight <= LEAST_QUEUE or row.stop == '' then return false end
  if in_flight < CAUSED * slowdown * (row.lat_usual or 1) then return false end
  return row.stop == 'window' or row.stop == 'slots' or (row.inflight or 0) > GROWN * in_flight
end

-- How much slower than usual calls are that queue. Where a rate limits the lane that does not grow, as in slow start,
-- latency may become steady at some more calls in flight.
local function knee_of(row, count)
  local starting = known(row.requests_est) and not known(row.requests_age_ms)
  local closed = row.stop == 'window' or row.stop == 'slots' or starting
  return (closed and count >= MANY_SAMPLES and KNEE or SHARP_KNEE) * (row.knee_factor or 1)
end

-- Watches how much slower successes are than usual.
function watch_latency(row, lease, used, now)
  if says_nothing(row, lease, now) then return end
  local slower = slowness(row, lease, used, now, narrowed(row))
  if not slower then
    if not row.lat_n then row.lat_base, row.lat_usual = 1, math.max(row.lat_usual or 0, lease.inflight) end
    return
  end
  local count, sum = (row.lat_n or 0) + 1, (row.lat_sum or 0) + slower
  local places, from_ms = (row.lat_places or 0) + lease.inflight, row.lat_from_ms or now
  local mean, base, in_flight = sum / count, row.lat_base or 1, places / count
  local slow, follow = mean > knee_of(row, count) * base, mean < base and BASE_FALLS or BASE_RISES
  if not enough(row, count, mean, slow) or from_ms > lease.granted_ms then
    row.lat_n, row.lat_sum, row.lat_places, row.lat_from_ms = count, sum, places, from_ms
    return
  end
  row.lat_n, row.lat_sum, row.lat_places, row.lat_from_ms = 0, 0, 0, now
  if row.knee == 1 and narrowed(row) then
    row.lat_base = judge_narrower(row, in_flight, mean, base, now)
    return
  elseif slow and queues(row, in_flight, mean / base) then
    return try_narrower(row, in_flight, mean, base, now)
  elseif slow then
    follow = 1
  elseif narrowed(row) then
    widen_by_latency(row, mean, base, now)
    follow = mean < base and follow or 0
  end
  row.lat_base = base + follow * (mean - base)
  row.lat_usual = (row.lat_usual or in_flight) + follow * (in_flight - (row.lat_usual or in_flight))
end
