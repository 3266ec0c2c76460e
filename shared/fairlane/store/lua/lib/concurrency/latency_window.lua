-- The narrower window that is tried on a lane whose calls seem to queue at the provider. In a lane's hash:
--   knee, knee_ms, knee_mean, knee_flow   1 while a narrower window is tried; since when calls show its effect; the
--                            slowness and the answers a time unit before it
--   knee_factor              2 once a narrower window was of no use: a queue must be twice as slow
-- GIVES: narrowed try_narrower judge_narrower widen_by_latency
-- USES: concurrency/concurrency_limit concurrency/detector_constants lane/state

function narrowed(row)
  return known(row.window) and row.window_by == 'latency'
end

-- The window becomes what keeps the provider busy by Little's law, and some more.
function try_narrower(row, in_flight, mean, base, now)
  row.knee, row.knee_ms, row.knee_mean, row.knee_flow = 1, now, mean, in_flight / mean
  narrow_window(row, math.ceil(in_flight * base / mean * ROOM), 'latency')
end

-- Judges a narrower window; returns the usual slowness. Where latency has not come down, calls did not queue, and the
-- window goes. Where fewer answers come back, it was too narrow, and a wider one is tried. From then on only calls
-- still slower are taken for a queue.
function judge_narrower(row, in_flight, mean, base, now)
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
function widen_by_latency(row, mean, base, now)
  if row.stop ~= 'window' or mean >= QUICK * base then return end
  row.window, row.knee_ms, row.window_age_ms = 2 * row.window, now, 0
end
