-- Detects a concurrency limit of a provider that queues calls instead of rejecting them: latency grows with the calls
-- in flight, while no more answers come back a second. A call is compared with those of its run and call kind, since
-- models and prompts differ in speed, whatever the lane. A run keeps 'pace:<kind>': the number of calls and their
-- latency per token. In a lane's hash:
--   token_ms                 its latest latency per token
--   lat_base, lat_usual      how much slower than their kind its calls usually are, and how many are in flight then
--   lat_n, lat_sum, lat_places, lat_from_ms   calls since a time, the sums of their slowness and of the calls in flight
--   knee, knee_ms, knee_mean, knee_flow   1 while a narrower window is tried; since when calls show its effect; the
--                            slowness and the answers a time unit before it
--   knee_factor              2 once a narrower window was of no use: a queue must be twice as slow
-- GIVES: watch_latency
-- USES: lane/concurrency_limit lane/detector_constants lane/state
-- NEEDS: KEY.state

-- How much slower a call was than its kind, per token of output, since long answers take long. The worker measures the
-- call: the time between two scripts also holds that in which Redis or the worker's connection stood still.
local function slowness(row, lease, used, now)
  local took_ms = lease.took_ms or now - (lease.claimed_ms or lease.granted_ms)
  local token_ms = math.max(1, took_ms) / (FIRST_TOKEN + math.max(0, used and used.output or 0))
  row.token_ms = (row.token_ms or token_ms) + (token_ms - (row.token_ms or token_ms)) / SAMPLES
  local field = 'pace:' .. lease.kind
  local count, usual = string.match(redis.call('HGET', KEY.state, field) or '', '^(%d+) (%S+)$')
  count, usual = tonumber(count or 0) + 1, tonumber(usual or token_ms)
  local pace = usual + (token_ms - usual) / (count <= SAMPLES and count or PACE_CALLS)
  redis.call('HSET', KEY.state, field, string.format('%d %.6g', math.min(count, PACE_CALLS), pace))
  return token_ms / usual
end

local function narrowed(row)
  return known(row.window) and row.window_by == 'latency'
end

-- Whether a success says nothing: it started before the last change of the window or while Redis was away, or the
-- lane was rejected lately.
local function says_nothing(row, lease, now)
  if lease.granted_ms < math.max(row.knee_ms or 0, row.ramp_ms or 0) then return true end
  return not narrowed(row) and now < (row.last_ms or -REFUSED_LATELY_MS) + REFUSED_LATELY_MS
end

-- Whether so many calls decide: few where a window holds calls back, so that it is widened soon.
local function enough(row, count, slow)
  if narrowed(row) then return count >= math.max(LEAST_SAMPLES, math.min(SAMPLES, row.window)) end
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

-- The window becomes what keeps the provider busy by Little's law, and some more.
local function try_narrower(row, in_flight, mean, base, now)
  row.knee, row.knee_ms, row.knee_mean, row.knee_flow = 1, now, mean, in_flight / mean
  narrow_window(row, math.ceil(in_flight * base / mean * ROOM), 'latency')
end

-- Judges a narrower window; returns the usual slowness. Where latency has not come down, calls did not queue, and the
-- window goes. Where fewer answers come back, it was too narrow, and a wider one is tried. From then on only calls
-- still slower are taken for a queue.
local function judge_narrower(row, in_flight, mean, base, now)
  local eased = mean <= EASED * row.knee_mean
  local fewer = row.stop == 'window' and in_flight / mean < FLAT * row.knee_flow
  if eased and not fewer then
    row.knee = 0
    return math.max(base, mean / ROOM)
  end
  row.knee_factor, row.knee_ms = 2, now
  if eased and 2 * row.window < row.knee_flow * row.knee_mean then
    row.window, row.window_age_ms = 2 * row.window, 0
    return base
  end
  row.window, row.knee = '', 0
  return math.max(mean, row.knee_mean)
end

-- Doubles a window that latency has narrowed while nothing queues: the provider was slow for a while.
local function widen_by_latency(row, mean, base, now)
  if row.stop ~= 'window' or mean >= QUICK * base then return end
  row.window, row.knee_ms, row.window_age_ms = 2 * row.window, now, 0
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
  local count, sum = (row.lat_n or 0) + 1, (row.lat_sum or 0) + slowness(row, lease, used, now)
  local places, from_ms = (row.lat_places or 0) + lease.inflight, row.lat_from_ms or now
  local mean, base, in_flight = sum / count, row.lat_base or 1, places / count
  local slow, follow = mean > knee_of(row, count) * base, mean < base and BASE_FALLS or BASE_RISES
  if not enough(row, count, slow) or from_ms > lease.granted_ms then
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
