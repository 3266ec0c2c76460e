-- A lane whose provider is silent: calls have been in flight for longer than its calls ever take, and none has ended.
-- Then few further ones start. Otherwise a hang would take as many as the rate allows, until the first time-out. In a
-- lane's hash:
--   ended            calls that had ended at the latest look, with any signal but `broken`
--   unanswered       calls that started since then, without those of runs that were never answered
--   unanswered_ms, unanswered_for   when as many had started as open the circuit, and how many ms later one may start
-- GIVES: silent_ms note_unanswered unanswered_until
-- USES: circuit/circuit_constants concurrency/hung lane/state

local ENDS = { 'ok', 'answered', 'limited', 'overloaded', 'server_error', 'refused', 'none', 'unsent' }

-- After how many ms without an end of a call a lane counts as silent; nil if it has not answered yet.
function silent_ms(row)
  local slowest = known(row.slowest_ms)
  return slowest and math.max(SILENT_LEAST_MS, SILENT * slowest)
end

-- Starts over if a call has ended. Checked once a script, as only reports end calls. A `broken` call shows nothing: its
-- time was up, or its connection broke.
local function catch_up(row)
  if CALL.caught_up == row then return end
  CALL.caught_up = row
  local ended = 0
  for _, signal in ipairs(ENDS) do ended = ended + (row['seen_' .. signal] or 0) end
  if ended == row.ended then return end
  row.ended, row.unanswered = ended, 0
  if known(row.unanswered_ms) then row.unanswered_ms, row.unanswered_for = '', '' end
end

-- Counts a call that starts, unless it `learns`: its run was never answered, and may be slower than all others. After a
-- call that starts on a silent lane, the next waits for a quarter of the silence, at most for the longest probe delay.
-- In `admission` (lane/admission), full_ms says since when nothing is answered in the full window that it goes beyond.
function note_unanswered(admission, learns)
  local row, limits, now, full_ms = admission.row, admission.limits, admission.now, admission.full_ms
  catch_up(row)
  local from_ms, longest = known(row.unanswered_ms), 1000 * (limits.outage_longest_delay or OUTAGE_LONGEST_S)
  local window = admission.window - admission.hung
  if full_ms then suspect_hung(row, window, full_ms, longest, now) end
  if from_ms then
    local silent = silent_ms(row)
    local silence = now - from_ms
    if silent and silence >= silent then
      row.unanswered_for = silence + math.min(SILENT_GROWTH * silence, longest)
      if not full_ms then suspect_hung(row, window, from_ms, longest, now) end
    end
  elseif not learns then
    row.unanswered = (row.unanswered or 0) + 1
    if row.unanswered >= (limits.outage_failures or OUTAGE_FAILURES) then row.unanswered_ms = now end
  end
end

-- Until when a silent lane starts no further call; nil if one may start. An open circuit has probes of its own.
function unanswered_until(row, now)
  catch_up(row)
  local from_ms, silent = known(row.unanswered_ms), silent_ms(row)
  if not from_ms or not silent or now < from_ms + silent then return nil end
  if (row.inflight or 0) == 0 or (row.circuit or 'closed') ~= 'closed' then return nil end
  local until_ms = from_ms + (known(row.unanswered_for) or silent)
  return now < until_ms and until_ms or nil
end
