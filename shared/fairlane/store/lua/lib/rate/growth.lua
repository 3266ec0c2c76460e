-- Lets a rate grow along the curve of lib/rate/curve.lua while it limits jobs.
-- GIVES: age_estimate
-- USES: lane/state rate/constants rate/curve

-- Ages the estimate of the axis that limited jobs since permits were last requested, unless something else bounds the
-- axis to `allowed`. `risen`: the lane has had more than its estimate allows. With an unsure estimate, the lane
-- searches the limit up to PROVED deviations above it without that proof. Beyond the estimate a rate grows only after a
-- call that started since the last 429 has succeeded. No rate grows while the lane still meets 429s.
function age_estimate(row, axis, allowed, elapsed_ms, risen)
  local age = known(row[axis .. '_age_ms'])
  if not age or known(row.shut) or curve(row, axis) > BOUNDED * allowed then return end
  local older, back = age + elapsed_ms, back_ms(row, axis)
  if row.proved ~= 1 then older = math.max(age, math.min(older, back)) end
  row[axis .. '_age_ms'] = older
  local searches = is_unsure(row, axis) and curve(row, axis) < row[axis .. '_est'] * (1 + PROVED * doubt(row, axis))
  if row.proved == 1 and (searches or risen and row[axis .. '_window'] ~= 1) and older > back then
    row[axis .. '_climb_ms'] = (row[axis .. '_climb_ms'] or 0) + elapsed_ms
  end
end
