-- Rate limits that functions raise, on lanes `python:…`. A function may raise one for its row alone, at any rate. So
-- until the lane has an estimate of its limit, it learns from them only while more calls raise one than return: slow
-- start overshoots a limit by that much. In a lane's hash:
--   raised, returned   such calls and others, of about the last RAISED_RECENT
-- GIVES: is_of_function is_of_row
-- USES: circuit/own_rejections job/rejections lane/state

local RAISED_RECENT = 20 -- calls after which one counts for a third (1/e): as FRESH_RECENT (circuit/row_constants)
local RAISED_FEW = 4 -- calls that are added to those that returned: one batch of rows may be rejected
local RAISED_WAIT_MS = 1000 -- ms until the row's next call, if the function names none: its lane does not slow it

function is_of_function(lane)
  return string.sub(lane, 1, 7) == 'python:'
end

-- Whether a function's rate limit is of its row; counts the end of a call. Calls in flight count as returned: rejected
-- ones end sooner.
local function is_of_functions_row(row, lease, raised)
  local fade = 1 - 1 / RAISED_RECENT
  row.raised = (row.raised or 0) * fade + (raised and 1 or 0)
  row.returned = (row.returned or 0) * fade + (raised and 0 or 1)
  local others = row.returned + (row.inflight or 1) - 1 + RAISED_FEW
  if not raised or known(row.requests_age_ms) or row.raised > others then return false end
  lease.waits_ms = RAISED_WAIT_MS
  return true
end

-- Whether a call that ended with `signal` was rejected because of its row.
function is_of_row(row, limits, lease, signal)
  local rejected = is_rejection(signal)
  if is_of_function(lease.lane) and signal ~= 'overloaded' then return is_of_functions_row(row, lease, rejected) end
  return judge_rejection(row, limits, lease, rejected)
end
