-- Lifts: a lane without a configured limit approaches the first limit that its provider reports, instead of jumping
-- there. Another axis may be the tighter one, and a 429 needs a round trip to show that.
--   requests_lift, _lift_ms   the rate at the first report, and when that was
-- GIVES: begin_lift lifted
-- USES: lane/state rate/constants

-- Notes the rate from which a lane is lifted. Other axes are lifted by the requests that use them.
function begin_lift(row, axis, configured, now)
  if axis ~= 'requests' or configured then return end
  row.requests_lift, row.requests_lift_ms = known(row.requests_est) or START_PER_MINUTE, now
end

-- What a reported `rate` allows by now. Also returns whether the lane is still far below it.
function lifted(row, axis, rate)
  local from = known(row[axis .. '_lift'])
  if not from then return rate, false end
  local most = from * math.exp(math.min(100, math.max(0, (row.asked_ms or 0) - row[axis .. '_lift_ms']) / LIFT_MS))
  return math.min(rate, most), most < STARTED_WITH * rate
end
