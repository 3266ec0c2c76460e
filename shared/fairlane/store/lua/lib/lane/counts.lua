-- Counts what a lane has admitted, on each axis: the estimator measures limits by them.
-- GIVES: calls_a_minute admitted admitted_by mark_opening rate_of_use
-- USES: rate/rate tokens/amounts

-- Calls that come back at once: those that the provider rejected, and those that were never sent.
local function uncounted(row)
  return (row.seen_limited or 0) + (row.seen_unsent or 0)
end

-- Requests or tokens that a lane has admitted so far.
function admitted(row, axis)
  if axis == 'requests' then return (row.granted or 0) - uncounted(row) end
  return amount_on(axis, { input = row.spent_input or 0, output = row.spent_output or 0 })
end

-- The same count at the moment when a call was granted.
function admitted_by(row, axis, lease)
  if axis == 'requests' then return lease.n - uncounted(row) end
  return amount_on(axis, lease.spent) - amount_on(axis, lease.charged)
end

-- Notes when a lane was last found open, and the count at that moment.
function mark_opening(row, axis, at_ms, count)
  row[axis .. '_open_ms'], row[axis .. '_open'], row[axis .. '_idle_ms'], row[axis .. '_wait_ms'] = at_ms, count, 0, 0
end

-- Calls a minute at the estimate of an axis: as many tokens a call as so far.
function calls_a_minute(row, axis)
  if axis == 'requests' then return row[axis .. '_est'] end
  return row[axis .. '_est'] * math.max(1, row.granted or 1) / math.max(1, admitted(row, axis))
end

-- How fast an axis without any limit was used, a minute: as many tokens a call as so far.
function rate_of_use(row, axis)
  local calls = math.max(1, row.granted or 1)
  local span_ms = math.max(1000, (row.asked_ms or 0) - (row.known_ms or 0))
  local rate = learned_rate(row, 'requests') or calls * 60000 / span_ms
  return axis == 'requests' and rate or rate * math.max(1, admitted(row, axis)) / calls
end
