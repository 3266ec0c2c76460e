-- Learns from a 429 whose own headers show less left of a reported limit than the call takes: that limit refused
-- it. Its rate is known. So such a 429 measures nothing: the provider had saved less than the lane, windows hold whole
-- calls, or others use that limit too.
--   <axis>_shown   the latest call that began an epoch of such 429s, while the estimate follows from them
-- GIVES: learn_shown
-- USES: lane/state rate/constants rate/estimate_filter rate/refusal_budget

-- Learns from a 429 of a new epoch that shows `axis` exhausted at `rate`. As often as the refusal budget pays for,
-- that rate stays. Else it falls by what was missing for the call, as a share of the calls since the last such epoch:
-- by so much the rate was too high. Soon after that epoch a whole call counts: the provider may take more than the lane
-- expects. A lane that is `starting` towards the reported limit knows no rate.
function learn_shown(row, limits, axis, rate, starting, lease, now)
  local before, last = known(row[axis .. '_age_ms']) and row[axis .. '_est'] or 0, known(row[axis .. '_shown'])
  local est = math.max(before, rate) -- a lane that has climbed met the limit there
  local calls, cut = lease.n - (last or 0), 0
  if last and calls < 1 / (limits.refusal_budget or REFUSAL_BUDGET) then
    local missing = calls < FEW_SINCE and 1 or row.short_then
    cut = math.min(CUT_MOST, math.max(CUT_LEAST, missing / math.max(1, calls)))
  end
  if cut > CUT_LEAST then probe_often(row, axis) else put_probe_off(row, axis) end
  row[axis .. '_shown'], row[axis .. '_least'], row[axis .. '_least_ms'], row.novice = lease.n, '', '', 0
  set_estimate(row, axis, (1 - cut) * est, (math.max(starting and 1 or SURE, cut) * est) ^ 2, now)
end
