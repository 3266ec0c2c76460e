-- Learns from a 429 whose own headers show less left of a reported limit than the call takes: that limit caused it. Its
-- rate is known, so such a 429 measures nothing: the provider had saved less than the lane, windows hold whole calls,
-- or others use that limit, too.
--   <axis>_shown   the latest call that began an epoch of such 429s
-- GIVES: learn_shown
-- USES: estimate/estimate_filter lane/state rate/constants rate/lift rate/refusal_budget reported/free

-- Learns from a 429 of a new epoch that shows `axis` exhausted at `rate`. The rate stays while the refusal budget pays
-- for such 429s. Else, the fewer calls there were since the last such epoch, the more it falls and the less sure it is.
-- A first estimate includes what others take. On a lane that is lifted towards its first report, others or a burst had
-- taken what was left: the limit is the reported one.
function learn_shown(row, limits, axis, rate, lease, now)
  local before, last = known(row[axis .. '_age_ms']) and row[axis .. '_est'] or 0, row[axis .. '_shown']
  local est = math.max(before, rate) -- a lane that has climbed met the limit there
  local reported = UNDER_REPORTED * (known(row[axis .. '_reported']) or 0)
  if before == 0 then est = math.max(est, math.min(reported, rate + others_rate(row, axis))) end
  if lifted(row, axis, reported) < reported then est = reported end
  local calls, cut = lease.n - (last or 0), 0
  if last and calls < 1 / (limits.refusal_budget or REFUSAL_BUDGET) then
    local climbed = rate * (1 - CUT_LEAST) > before
    cut = climbed and CUT_LEAST or math.min(CUT_MOST, math.max(CUT_LEAST, CUT_CALLS / math.max(1, calls)))
  end
  if cut > CUT_LEAST then probe_often(row, axis) else put_probe_off(row, axis) end
  row[axis .. '_shown'], row.novice = lease.n, 0
  set_estimate(row, axis, (1 - cut) * est, (math.max(SURE, cut) * est) ^ 2, now)
end
