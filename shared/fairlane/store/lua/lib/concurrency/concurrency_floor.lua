-- The floor of a lane that meets 429s: the fewest calls in flight at a 429. In a lane's hash:
--   floor, low     that number, and the same in the present epoch
--   floors         how many epochs agreed on it in a row
--   under, over    calls that went through at clearly fewer in flight, and at more
-- GIVES: forget_floor in_flight_error refuted_floor count_served
-- USES: concurrency/detector_constants lane/state

function forget_floor(row)
  row.floor, row.floors, row.under, row.over = '', 0, 0, 0
end

-- By how many calls our number in flight may differ from the provider's: calls and answers are on their way. A trial
-- learns no rate, so the rate before it counts.
function in_flight_error(row)
  local trial = known(row.window) and row.window_by == 'refusals'
  local rate = trial and known(row.given_up) or known(row.requests_est) or 0
  return 1 + rate / 60000 * (row.refusal_ms or 100)
end

-- Whether calls that went through at more in flight refute the floor: too many, compared with those at fewer. A floor
-- of few calls is compared with the 429s that agree on it, since two calls that start at once overtake each other.
function refuted_floor(row)
  local over = row.over or 0
  if (known(row.floor) or 0) < FEW_AT_ONCE then return FEW_OVER * over > (row.floors or 0) end
  return RARE * over > (row.under or 0)
end

-- Counts a call that went through. Below FEW_AT_ONCE one more in flight or one fewer is clear.
function count_served(row, lease)
  local floor = known(row.floor)
  if not floor then return end
  local blur = in_flight_error(row)
  local most, fewer = floor + blur, floor - blur
  if floor < FEW_AT_ONCE then most, fewer = most - 2, fewer + 1 end
  if lease.inflight > most then
    row.over = (row.over or 0) + 1
    if row.over >= OVER and refuted_floor(row) then forget_floor(row) end
  elseif lease.inflight >= NEAR * floor and lease.inflight < fewer then
    row.under = (row.under or 0) + 1
  end
end
