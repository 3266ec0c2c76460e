-- Begins an epoch: the 429s of calls that were granted before the lane saw the first of them.
-- GIVES: begin_epoch
-- USES: estimate/estimate_filter estimate/measurement lane/state rate/constants rate/curve refusal/exhausted
--       reported/window_detector

-- Notes the first 429 of an epoch: its axis, the rate at that moment and the estimate that it followed. Slow start
-- overshoots up to twofold; a configured or reported limit does not. A limit that the 429 itself shows as
-- exhausted is exceeded by a little.
function begin_epoch(row, limits, axis, rate, est_then, starting, lease, now)
  row.shut, row.first_ms, row.refusals, row.crowd = axis, lease.granted_ms, 1, lease.inflight
  row.first_refused_n = lease.n
  row.first, row.pace_then, row.est_then, row.epoch = row.last, rate, est_then, (row.epoch or 0) + 1
  note_window_use(row, axis, now)
  if row.shown_then == 1 then
    learn_shown(row, limits, axis, rate, lease, now)
  elseif not known(row[axis .. '_age_ms']) then
    local start = rate * (starting and STARTED_WITH or KEPT_OF_NEW)
    set_estimate(row, axis, start, start * start, now)
    row.novice = 1
  end
  local climbed = (row[axis .. '_climb_ms'] or 0) > 0 and row[axis .. '_window'] ~= 1
  local saved_ms = SAVED_OF_WAIT * (row[axis .. '_wait_ms'] or 0)
  row.risen_then = climbed and has_risen(row, axis, row.first, saved_ms, row.first_ms) and 1 or 0
  row.stray = below_estimate(row, axis) and 1 or 0
  row.age_then, row.idle_then = known(row[axis .. '_age_ms']) or 0, row[axis .. '_idle_ms'] or 0
  row[axis .. '_age_ms'], row[axis .. '_climb_ms'], row.proved = 0, 0, 0
end
