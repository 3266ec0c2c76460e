-- How the window grows that deadlines have narrowed (concurrency/late).
-- GIVES: climb_in_time too_late_to_widen
-- USES: concurrency/detector_constants lane/state

-- An answer in a window that deadlines have narrowed: the first one ends the wait for calls that nobody awaits, and
-- each that is early widens it.
function climb_in_time(row, lease, now)
  if lease.n <= (row.late_n or 0) then return end
  if known(row.late_to) then
    row.window, row.late_to = row.late_to, ''
    return
  end
  local took_ms = lease.took_ms or now - lease.granted_ms
  if row.stop == 'window' and took_ms <= LATE_CLIMB * (row.late_ms or math.huge) then row.window = row.window + 1 end
end

-- Whether the window stays as it is however long it has limited jobs: its calls take long, or one at a time starts.
function too_late_to_widen(row)
  if row.window_by ~= 'deadline' then return false end
  return known(row.late_to) or (row.usual_ms or 0) > LATE_WIDEN * (row.late_ms or math.huge)
end
