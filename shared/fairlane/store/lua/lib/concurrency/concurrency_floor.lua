-- The floor of a lane that is rejected: the fewest calls in flight at a 429. In a lane's hash:
--   floor, low     that number, and the same in the present epoch
--   floors         how many epochs agreed on it in a row
--   under, over    calls that went through at clearly fewer in flight, and at more
-- GIVES: forget_floor in_flight_blur count_served
-- USES: concurrency/detector_constants lane/state

function forget_floor(row)
  row.floor, row.floors, row.under, row.over = '', 0, 0, 0
end

-- By how much our number in flight may differ from the provider's: calls are on their way, and answers. During a trial
-- the rate is not learned, and the one before it counts.
function in_flight_blur(row)
  local trial = known(row.window) and row.window_by == 'refusals'
  local rate = trial and known(row.given_up) or known(row.requests_est) or 0
  return 1 + rate / 60000 * (row.refusal_ms or 100)
end

-- Counts a call that went through.
function count_served(row, lease)
  local floor = known(row.floor)
  if not floor then return end
  if lease.inflight > floor + in_flight_blur(row) then
    row.over = (row.over or 0) + 1
    if row.over >= OVER and RARE * row.over > (row.under or 0) then forget_floor(row) end
  elseif lease.inflight >= NEAR * floor and lease.inflight < floor - in_flight_blur(row) then
    row.under = (row.under or 0) + 1
  end
end
