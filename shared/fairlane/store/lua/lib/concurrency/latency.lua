-- Detects a concurrency limit of a provider that queues calls: latency grows with the calls in flight, but answers a
-- second do not. The search for a wider window begins at the one that this suggests. In a lane's hash:
--   lat_base, lat_usual      how much slower than their kind its calls usually are, and how many are in flight then,
--                            at least as many as are served so by Little's law
--   lat_from                 the permit before the MANY_SAMPLES that are measured. Nearly all must end, because quick
--                            calls end first, and on a blocked lane only slow ones are left
--   lat_n, lat_sum, lat_places   how many were answered, the sums of their slowness and of their calls in flight.
--                            If many fail, they are judged once much later calls end
--   knee_factor              2 once a wider window has helped: from then on, only twice the slowness shows a queue
-- GIVES: watch_latency
-- USES: concurrency/detector_constants concurrency/slowness lane/state

-- Whether a success shows nothing: it started before the window was full or before the ramp, a window is being tried,
-- or a call was rejected lately.
local function shows_nothing(row, lease, now)
  if lease.granted_ms < (row.ramp_ms or 0) or lease.n <= (row.search_n or 0) then return true end
  if known(row.search_window) and row.stop == 'window' and (known(row.search_base) or not known(row.search_rest)) then
    return true
  end
  return now < (row.rejected_ms or -REFUSED_LATELY_MS) + REFUSED_LATELY_MS
end

-- Whether slow calls queue. If latency has grown more than the calls in flight, the provider, the network or a worker
-- stood still. If a rate limits the lane and no more calls are in flight than before, the provider keeps up with it.
local function queues(row, in_flight, slowdown)
  if in_flight <= LEAST_QUEUE or row.stop == '' then return false end
  if in_flight < CAUSED * slowdown * (row.lat_usual or 1) then return false end
  return row.stop == 'window' or row.stop == 'slots' or (row.inflight or 0) > GROWN * in_flight
end

-- The slowness from which calls queue. It is higher on a lane that a steady rate limits: there, latency may settle with
-- a few more calls in flight.
local function queueing_threshold(row, many)
  local starting = known(row.requests_est) and not known(row.requests_age_ms)
  local closed = row.stop == 'window' or row.stop == 'slots' or starting
  return (closed and many and KNEE or SHARP_KNEE) * (row.knee_factor or 1)
end

-- Begins a search for the window (concurrency/search_window) at `window` calls.
local function search_from(row, window, now)
  row.search_window, row.search_by, row.search_base, row.search_rest = window, 'latency', '', ''
  row.search_n, row.search_ms, row.search_count, row.search_took_ms = row.granted, now, 0, 0
end

-- Measures how much slower than usual successes are. Latency in a narrowed window does not become usual.
function watch_latency(row, lease, used, now)
  if shows_nothing(row, lease, now) then return end
  local narrowed = row.search_by == 'latency' and row.stop == 'window'
  local slower = slowness_of(row, lease, used, now, narrowed)
  if not slower then
    if not row.lat_n then row.lat_base, row.lat_usual = 1, math.max(row.lat_usual or 0, lease.inflight) end
    return
  end
  local from, count, sum, places = row.lat_from or lease.n - 1, row.lat_n or 0, row.lat_sum or 0, row.lat_places or 0
  if lease.n <= from then return end
  local over = lease.n > from + MANY_SAMPLES + 2 * lease.inflight
  if over and count < SAMPLES then
    row.lat_n, row.lat_sum, row.lat_places, row.lat_from = 0, 0, 0, row.granted
    return
  elseif not over then
    if lease.n > from + MANY_SAMPLES then return end
    count, sum, places = count + 1, sum + slower, places + lease.inflight
  end
  local mean, base, in_flight = sum / count, row.lat_base or 1, places / count
  local many = (over and MANY_SAMPLES / 2 or NEARLY_ALL * MANY_SAMPLES) <= count
  local slow, follow = mean > queueing_threshold(row, many) * base, mean < base and BASE_FALLS or BASE_RISES
  if not over and not many and (count < SAMPLES or row.lat_base and not slow) then
    row.lat_n, row.lat_sum, row.lat_places, row.lat_from = count, sum, places, from
    return
  end
  row.lat_n, row.lat_sum, row.lat_places, row.lat_from = 0, 0, 0, row.granted
  if slow and queues(row, in_flight, mean / base) then
    return search_from(row, math.ceil(in_flight * base / mean * ROOM), now)
  elseif slow then
    follow = 1
  elseif narrowed then
    if mean < QUICK * base then row.search_rest = '' end
    follow = mean < base and follow or 0
  end
  local usual = row.lat_usual or in_flight
  row.lat_base = base + follow * (mean - base)
  row.lat_usual = math.max(usual + follow * (in_flight - usual), in_flight * base / mean)
end
