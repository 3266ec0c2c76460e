-- Widens the window after deadlines have narrowed it (concurrency/late).
-- GIVES: climb_in_time too_late_to_widen
-- USES: concurrency/detector_constants lane/state

-- Notes an answer: the first shows that the server has finished abandoned calls, and sets the window to `late_to`. Each
-- answer well within the deadline widens it.
function climb_in_time(row, lease, now)
  if lease.n <= (row.late_n or 0) then return end
  if known(row.late_to) then
    row.window, row.late_to = row.late_to, ''
    return
  end
  local took_ms = lease.took_ms or now - lease.granted_ms
  if row.stop == 'window' and took_ms <= LATE_CLIMB * (row.late_ms or math.huge) then row.window = row.window + 1 end
end

-- Whether the window must not be widened: its calls take long, or the server may still work on abandoned calls.
function too_late_to_widen(row)
  if row.window_by ~= 'deadline' then return false end
  return known(row.late_to) or (row.usual_ms or 0) > LATE_WIDEN * (row.late_ms or math.huge)
end
