-- Counts what a lane has admitted, on each axis. The limit estimator measures limits by these counts.
-- GIVES: admitted admitted_by admitted_before corrections started_for mark_opening one_call calls_a_minute
-- USES: lane/state tokens/amounts

-- Calls that do not count: those that the provider rejected with 429s, and those that were never sent.
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

-- The sum of the corrections of calls so far (lib/outcome/spending.lua).
function corrections(row)
  return { input = row.corrected_input or 0, output = row.corrected_output or 0 }
end

-- The same count for a call that was just rejected, corrected by the actual usage of earlier calls. A 429 comes back at
-- once, so nearly all corrections since its permit are of earlier calls.
function admitted_before(row, axis, lease)
  local count = admitted_by(row, axis, lease)
  if axis == 'requests' or not lease.corrected then return count end
  return count + amount_on(axis, corrections(row)) - amount_on(axis, lease.corrected) - amount_on(axis, lease.off)
end

-- How many calls started for `count` admitted ones, if others were rejected by chance (lib/refusal/by_chance.lua): the
-- rate counts each call that starts.
function started_for(row, axis, count)
  return axis == 'requests' and known(row.chance) and count / (1 - row.chance) or count
end

-- Notes when a lane was last found open, and the count at that moment, up to its call `n`.
function mark_opening(row, axis, at_ms, count, n)
  row[axis .. '_open_ms'], row[axis .. '_open'], row[axis .. '_open_n'] = at_ms, count, n
  row[axis .. '_idle_ms'], row[axis .. '_wait_ms'] = 0, 0
end

-- The average usage of an admitted call on an axis: one request, or a number of tokens.
function one_call(row, axis)
  if axis == 'requests' then return 1 end
  return math.max(1, admitted(row, axis) / math.max(1, admitted(row, 'requests')))
end

-- Calls a minute at the estimate of an axis.
function calls_a_minute(row, axis)
  return row[axis .. '_est'] / one_call(row, axis)
end
