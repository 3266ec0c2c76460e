-- Calls that hang: in flight since before a lane fell silent (circuit/unanswered), while calls that started later are
-- answered. Their provider has lost them, so they fill no window that the lane has learned. In a lane's hash:
--   hung_n, hung          the latest permit before the last call that started in a silence, and the calls in flight up
--                         to it; hung_n is empty if none hang
--   hung_room             how many of them fill no window: those beyond it, and one more with each answer to a later
--                         call, as some may only be slow
--   hung_ms, hung_for     since when none was answered, and how many ms later the next call may start beyond a full
--                         window; hung_for is empty once a later call was answered
-- GIVES: hung_calls suspect_hung end_hung
-- USES: circuit/circuit_constants lane/state

-- How many calls in flight fill no learned window.
function hung_calls(row)
  return known(row.hung_n) and math.min(row.hung, row.hung_room) or 0
end

-- Notes that the call just admitted starts in a silence that began at `from_ms`. All others in flight may hang; the
-- window holds `window` of them. The next call waits for a quarter of the silence, `longest_ms` at most.
function suspect_hung(row, window, from_ms, longest_ms, now)
  if not known(row.hung_n) or not known(row.hung_for) then row.hung_ms = from_ms end
  local silence, others = now - row.hung_ms, row.inflight - 1
  row.hung_n, row.hung, row.hung_room = row.granted - 1, others, math.max(0, others - window)
  row.hung_for = silence + math.min(SILENT_GROWTH * silence, longest_ms)
end

-- Notes the end of a call. If one that may hang is answered before any later call, its provider only stood still. If a
-- later call is rejected, those that may hang may still count there.
function end_hung(row, lease, signal, now)
  if not known(row.hung_n) then return end
  if lease.n <= row.hung_n then
    row.hung = row.hung - 1
    if row.hung <= 0 or signal == 'ok' and known(row.hung_for) then row.hung_n = '' end
  elseif signal == 'ok' then
    row.hung_room, row.hung_for = row.hung_room + 1, ''
  elseif known(row.hung_for) and (signal == 'limited' or signal == 'overloaded') then
    row.hung_for = 2 * (now - row.hung_ms)
  end
end
