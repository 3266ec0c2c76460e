-- Lifts: a lane that nobody has configured approaches the first limit that its provider reports, instead of jumping
-- there. The report may be of an axis that does not bind, and a 429 needs a round trip to say so.
--   requests_lift, _lift_ms   the rate at the first report, and when that was
-- GIVES: begin_lift lifted lifted_by_tokens
-- USES: lane/state rate/constants tokens/amounts

-- Notes the rate from which a lane is lifted, at the first report of requests, or of tokens before. Other axes are
-- lifted by the requests that use them.
function begin_lift(row, axis, configured, now)
  if configured or axis ~= 'requests' and known(row.requests_lift) then return end
  row.requests_lift, row.requests_lift_ms = known(row.requests_est) or START_PER_MINUTE, now
end

-- What a reported `rate` allows by now. The second result says whether the lane is still far below it.
function lifted(row, axis, rate)
  local from = known(row[axis .. '_lift'])
  if not from then return rate, false end
  local most = from * math.exp(math.min(100, math.max(0, (row.asked_ms or 0) - row[axis .. '_lift_ms']) / LIFT_MS))
  return math.min(rate, most), most < STARTED_WITH * rate
end

-- The requests a minute that reported limits of tokens allow by now, where no limit of requests is reported: as many
-- tokens a call as so far. 0 where no limit of tokens is reported either.
function lifted_by_tokens(row)
  local spent, most = { input = row.spent_input or 0, output = row.spent_output or 0 }, math.huge
  for _, axis in ipairs({ 'tokens', 'input', 'output' }) do
    local reported, tokens = known(row[axis .. '_reported']), amount_on(axis, spent)
    if reported and tokens > 0 then most = math.min(most, reported * (row.granted or 0) / tokens) end
  end
  return known(row.requests_lift) and most < math.huge and lifted(row, 'requests', most) or 0
end
