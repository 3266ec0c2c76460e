-- 429s of a known token limit that come because calls use more tokens than expected. A few in a hundred calls are
-- excused: neither the rate nor the bucket's depth is wrong.
--   <axis>_excuses, <axis>_excused   how many 429s may be excused, as of which permit
-- GIVES: excusable excuse
-- USES: buckets/buckets buckets/token_bucket lane/state rate/constants tokens/amounts tokens/length_constants

local function excuses(row, axis, lease)
  local calls = lease.n - (row[axis .. '_excused'] or 0)
  return math.min(EXCUSES_MOST, (row[axis .. '_excuses'] or EXCUSES_MOST) + EXCUSED * math.max(0, calls))
end

-- Whether the lengths of the calls in flight explain a 429 on this axis, whose bucket holds `level`.
function excusable(row, limits, axis, level, lease)
  if axis == 'requests' or limits.charge == 'reserved' or lease.n <= (row.sign or 0) then return false end
  if not lease.guessed and level / UNIT > unknown_in_flight(row, axis) then return false end
  local stated = limits[CONFIGURED[axis]] or known(row[axis .. '_reported'])
  return stated and not known(row.shut) and excuses(row, axis, lease) >= 1
end

-- Excuses a 429, and learns only the bucket's level from it: when the provider says to come back, its bucket has what
-- the call takes. Without such a time, the bucket is empty.
function excuse(row, axis, level, lease, retry_after_ms, now)
  row[axis .. '_excuses'], row[axis .. '_excused'] = excuses(row, axis, lease) - 1, lease.n
  row.sign = row.granted
  row.blocked_ms = math.max(row.blocked_ms or 0, now + math.max(retry_after_ms, BACK_OFF_MS))
  local most = retry_after_ms > 0 and amount_on(axis, lease.charged) * UNIT or 0
  lower_level(row, { axis = axis, level = level }, most, row.blocked_ms)
end
