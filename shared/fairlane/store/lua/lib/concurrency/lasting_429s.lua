-- The most concurrent calls of a lane while its 429s last. In a lane's hash:
--   shut, refusals, crowd   429s that last (refusal/refusal): how many tries, and the calls in flight then
-- GIVES: most_while_rejected
-- USES: circuit/circuit_constants concurrency/detector_constants lane/state

-- If waiting does not end 429s with few calls in flight, the next try waits until one fewer is in flight: that ends the
-- 429s of a concurrency limit. It waits for a few usual latencies, as a single long call must not hold the lane.
function most_while_rejected(row)
  local crowd, enough = row.crowd or 0, known(row.again_ms) and FEW_TRIES or MANY_TRIES
  if row.shut ~= 'requests' or row.refusals < enough or crowd < 2 or crowd >= LEAST_FIRST then return math.huge end
  local patience = row.usual_ms and LATENCIES * row.usual_ms or PATIENCE_MS
  return (row.asked_ms or 0) <= (row.blocked_ms or 0) + patience and crowd - 1 or math.huge
end
