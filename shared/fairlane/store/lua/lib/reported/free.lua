-- What is free of a reported limit. Each axis keeps
--   <axis>_foreign, _foreign_ms   what other clients of the key take of it, a minute, and when that was measured
--   <axis>_free_to, _free_ms      the lane's count when the last report's remainder is used up, and when that came
--   <axis>_refills                1 if that report's reset is the time in which a bucket fills
--   <axis>_flat_ms                when a 429 on this axis came last
-- GIVES: others_rate note_free spare_shown
-- USES: lane/counts lane/state reported/others_constants

-- What other clients of the key take of an axis, a minute. Without new signs of them it decays.
function others_rate(row, axis)
  local unseen_ms = (row.asked_ms or 0) - (row[axis .. '_foreign_ms'] or 0) - UNSEEN_MS
  local rate = (row[axis .. '_foreign'] or 0) * 0.5 ^ math.max(0, unseen_ms / UNSEEN_HALF_MS)
  return rate >= SHARED_FROM * (known(row[axis .. '_reported']) or 0) and rate or 0
end

-- Whether a reset is the time in which a bucket of this rate earns what it lacks.
local function is_refill(reported, left, fullest, reset_ms)
  local lacks_ms = (fullest - left) / reported * 60000
  return lacks_ms > 0 and math.abs(reset_ms - lacks_ms) <= math.min(SAME_RENEWAL_MS, REFILL_NEAR * lacks_ms)
end

-- Notes a report: its remainder, and whether its reset is that of a bucket that holds a minute, or what was ever left.
-- A reset that is a date was true when the call started, and is read when it ends. If it has passed by then, it is 0.
-- Returns whether the reset as it is read is that of a bucket that holds what was ever left.
function note_free(row, axis, left, reset_ms, lease, now)
  row[axis .. '_free_to'], row[axis .. '_free_ms'] = left + admitted_by(row, axis, lease), now
  local reported, fullest = row[axis .. '_reported'], math.max(left, row[axis .. '_fullest'] or 0)
  local fits = false
  local one_ms, took_ms = 60000 / reported, now - lease.granted_ms
  for _, from_ms in ipairs({ reset_ms, reset_ms + took_ms }) do
    local off_ms = math.abs(from_ms - (reported - left) * one_ms) -- what is left is a whole number
    local minute = off_ms <= SAME_RENEWAL_MS + one_ms
    fits = fits or minute or is_refill(reported, left, fullest, from_ms)
  end
  local passed = reset_ms == 0 and (reported - left) * one_ms <= took_ms
  row[axis .. '_refills'] = reset_ms >= 0 and (fits or passed) and 1 or 0
  return is_refill(reported, left, fullest, reset_ms)
end

-- Tokens or requests that the provider's bucket holds beyond all calls that have started, if its reports are those of a
-- bucket and nobody else uses it. Headers may show a minute's view of a shallow bucket: a 429 ends that for long.
function spare_shown(row, axis)
  if row[axis .. '_refills'] ~= 1 then return 0 end
  local now, since_ms = row.asked_ms or 0, row[axis .. '_free_ms']
  local flat = now - (row[axis .. '_flat_ms'] or -FLAT_MS) < FLAT_MS
  if flat or not since_ms or known(row.growth_rate) or others_rate(row, axis) > 0 then return 0 end
  local earned = row[axis .. '_reported'] * math.max(0, now - since_ms) / 60000
  return math.max(0, math.min(row[axis .. '_fullest'] or 0, row[axis .. '_free_to'] - admitted(row, axis) + earned))
end
