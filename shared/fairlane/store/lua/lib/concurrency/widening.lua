-- A full window (concurrency/concurrency_limit): when it is widened, and when a call may start beyond it.
-- GIVES: with_window window_full widen_window
-- USES: circuit/unanswered concurrency/concurrency_limit concurrency/deadline_window concurrency/detector_constants
--       lane/state rate/constants

-- Notes the window before it is widened. Earlier calls that went through beyond the same window still count, less those
-- that answers on their way may explain.
local function note_widening(row)
  local again = row.fitted == row.window and row.beyond or 0
  row.beyond = math.max(0, again - STRAGGLERS)
  row.window_base, row.fitted = row.window, row.window
end

local function widened_after_ms(row)
  local waits = row.window_by == 'overload' or row.window_by == 'refusals' and known(row.at_once_named)
  return waits and row.widen_ms or WIDEN_MS
end

-- When a window that limits jobs is widened if no call ends before; 0 if only an answer widens it.
local function widened_at(row, now)
  if not known(row.window) or too_late_to_widen(row) then return 0 end
  return now + math.max(0, widened_after_ms(row) - (row.window_age_ms or 0))
end

-- Widens a window that has limited jobs for a while: the limit may have risen. The refusal budget pays for a 429 every
-- 1 / budget calls, unless 429s name the limit.
function widen_window(row, limits, elapsed_ms)
  if not known(row.window) or too_late_to_widen(row) then return end
  local granted, age_ms = row.granted or 0, (row.window_age_ms or 0) + elapsed_ms
  local guessed = row.window_by == 'refusals' and not known(row.at_once_named)
  local paid = guessed and granted - (row.window_from or granted) >= 1 / (limits.refusal_budget or REFUSAL_BUDGET)
  row.window_age_ms = age_ms
  if age_ms < widened_after_ms(row) and not paid then return end
  if not known(row.window_base) then note_widening(row) end
  row.window, row.window_age_ms, row.window_from, row.floors = row.window + row.window_step, 0, granted, 0
  row.window_step = math.min(2 * row.window_step, row.window)
end

-- Adds to an admission (lane/admission) the lane's window, how many calls hang, and the most that are stated.
function with_window(admission)
  admission.window, admission.hung, admission.stated = concurrency_limit(admission.row, admission.limits)
  return admission
end

-- When a call may start beyond a full window, as none in it is answered, and since when. nil if the circuit decides,
-- and where a few calls may just be slow, or too few were answered to know.
local function beyond_window_at(row)
  local silent = silent_ms(row)
  if not silent or (row.circuit or 'closed') ~= 'closed' then return nil end
  if row.inflight < LEAST_HUNG or (row.seen_ok or 0) < SAMPLES then return nil end
  if known(row.hung_n) and known(row.hung_for) then return row.hung_ms + row.hung_for, row.hung_ms end
  return row.started_ms + silent, row.started_ms
end

-- Whether a full window forbids a call, and until when (0: until woken). If none in it is answered, a call may start
-- beyond it (circuit/unanswered); never beyond a limit that is configured or reported. Nor does it forbid probes.
function window_full(admission, trial)
  local row, limits, now = admission.row, admission.limits, admission.now
  local in_flight, free = row.inflight or 0, trial or admission.probing
  if in_flight < (free and limits.max_concurrency or not free and admission.window or math.huge) then return false end
  local opens, beyond_ms, from_ms = widened_at(row, now), nil, nil
  if in_flight < admission.stated then beyond_ms, from_ms = beyond_window_at(row) end
  if not beyond_ms then return true, opens end
  if now < beyond_ms then return true, opens > 0 and math.min(opens, beyond_ms) or beyond_ms end
  admission.full_ms = from_ms
  return false
end
