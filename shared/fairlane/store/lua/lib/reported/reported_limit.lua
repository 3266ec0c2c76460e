-- The limit that a provider reports for an axis, and its effect on what was learned:
--   <axis>_reported, _reported_ms, _reported_n   the reported limit, when it was reported, and the calls by then
--   <axis>_by_header   1 if the latest 429 that changed the estimate showed this limit exhausted
-- GIVES: note_reported
-- USES: concurrency/detector_constants estimate/estimate_filter lane/counts lane/state rate/constants rate/lift
--       refusal/provisional

-- Forgets what was learned of a limit that another report replaces. An estimate from 429s that showed it exhausted
-- moves with the report: it has others' part, or what a shallow bucket wastes. It does not fall from a far higher
-- report, which was of another unit. An estimate well below the last report was not of that limit: it stays, but less
-- sure. Towards a far higher report the lane climbs from its estimate, as unnamed headers may be of another axis: its
-- calls prove the rise.
local function replace_report(row, axis, was, limit, now)
  local est = known(row[axis .. '_age_ms']) and row[axis .. '_est'] or was
  local moved = limit / was
  local is_share = moved > 1 or FAR_HIGHER * est >= was
  if row[axis .. '_by_header'] == 1 and known(row[axis .. '_age_ms']) and is_share then
    return set_estimate(row, axis, est * moved, (row[axis .. '_var'] or 0) * moved ^ 2, now)
  end
  if est < NOT_REPORTED * was and limit <= FAR_HIGHER * was then
    row[axis .. '_var'] = (row[axis .. '_var'] or 0) + (est * (moved - 1)) ^ 2
    return
  end
  local from = math.min(was, est)
  row[axis .. '_est'], row[axis .. '_age_ms'], row[axis .. '_foreign'] = '', '', 0
  if row.shut == axis then row.shut = '' end
  forget_openings(row)
  if limit <= FAR_HIGHER * was then return end
  set_estimate(row, axis, from, from * from, now)
  row[axis .. '_age_ms'], row[axis .. '_climb_ms'], row[axis .. '_saved'] = 0, 0, 1
  mark_opening(row, axis, now, admitted(row, axis), row.granted)
end

-- Notes that a limit of `limit` a minute was reported.
function note_reported(row, limits, axis, limit, now)
  local was = known(row[axis .. '_reported'])
  if not was then begin_lift(row, axis, limits[CONFIGURED[axis]], now) end
  if was and math.abs(limit - was) > MOVED * was then replace_report(row, axis, was, limit, now) end
  if was ~= limit then row[axis .. '_reported'] = limit end
  row[axis .. '_reported_ms'], row[axis .. '_reported_n'] = now, row.granted or 0
  -- The rate of slow start is no estimate.
  if not was and not known(row[axis .. '_age_ms']) then row[axis .. '_est'] = '' end
end
