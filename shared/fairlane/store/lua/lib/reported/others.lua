-- Detects other clients of the same key: the remainder that the provider reports falls by more than the lane's own
-- calls. The lane leaves them what they take, as long as there are signs of them.
--   <axis>_left, _left_ms, _renews_ms      the remainder, when the call that reported it started, when it renews
--   <axis>_left_start, _left_end, _left_done, _left_begun   the lane's calls then, by each way of counting them
--   <axis>_left_refills                    1 if its reset was the time in which a bucket fills
--   <axis>_fullest                         the most that was ever left
--   <axis>_foreign, _foreign_ms            what others take, a minute, and when that was last measured
-- GIVES: note_left
-- USES: lane/counts rate/constants reported/free reported/others_constants tokens/amounts

-- The lane's calls (on other axes: its tokens) at a report, by each way of counting. A provider may count a call when
-- it arrives or when it ends, also a rejected one, and report the remainder as of either time. Tokens count as used,
-- and as charged: the calls that are corrected may be of earlier reports.
local function counts(row, axis, lease)
  if axis ~= 'requests' then
    local now = admitted(row, axis)
    local charged = now - amount_on(axis, corrections(row))
    local begun = charged - ((row.granted or 0) - lease.n) * amount_on(axis, lease.charged)
    return { start = admitted_by(row, axis, lease), ['end'] = now, done = charged, begun = begun }
  end
  return { start = lease.n, ['end'] = row.granted or 0, done = (row.granted or 0) - (row.inflight or 0) }
end

-- Returns the most calls of the lane that may lie between two reports, by any way of counting, and the counts now.
local function own_calls(row, axis, lease)
  local most, found = -math.huge, counts(row, axis, lease)
  for way, count in pairs(found) do
    local field = axis .. '_left_' .. way
    most = math.max(most, count - (row[field] or 0))
    row[field] = count
  end
  return most
end

-- By how much the lane's calls between two reports may be miscounted: one call, and on other axes by how much the calls
-- in flight at both may exceed their charge.
local function one_unknown(row, axis, lease)
  if axis == 'requests' then return 1 end
  return amount_on(axis, lease.charged) + 2 * unknown_in_flight(row, axis)
end

-- What others took a minute in `since` ms, in which the remainder `fell` and the lane took at most `own`; nil if the
-- report does not show it. Only a provider whose resets are those of a bucket counts as refilled meanwhile: in a window
-- nothing is refilled, and a rise is a renewal. A bucket refills at most what it lacked.
local function taken_by_others(row, axis, report, own, fell, since)
  local reported, slack = row[axis .. '_reported'], own.one + row[axis .. '_reported'] * SPREAD_MS / 60000
  local taken = fell - own.most
  if report.refills then
    if report.full then return 0 end
    taken = taken + math.min(reported * since / 60000, report.lacked)
  elseif fell < 0 then
    return nil
  end
  return taken > slack and math.min(reported, taken / since * 60000) or 0
end

-- Learns from a reported remainder. Returns whether others were newly detected.
function note_left(row, axis, left, reset_ms, lease, now)
  local reported, was, was_ms = row[axis .. '_reported'], row[axis .. '_left'], row[axis .. '_left_ms']
  local before = others_rate(row, axis)
  local refills = note_free(row, axis, left, reset_ms, lease, now)
  local since, one = lease.granted_ms - (was_ms or -APART_MOST_MS), one_unknown(row, axis, lease)
  local apart_ms = (axis == 'requests' and APART_CALLS or APART_UNKNOWN) * one * 60000 / reported
  if since < math.max(APART_MS, math.min(APART_MOST_MS, apart_ms)) then return false end
  local fullest, renews = math.max(left, row[axis .. '_fullest'] or 0), lease.granted_ms + math.max(0, reset_ms)
  local fell, same = (was or left) - left, math.abs(renews - (row[axis .. '_renews_ms'] or 0)) < SAME_RENEWAL_MS
  local report = {
    refills = refills and row[axis .. '_left_refills'] == 1 and not (same and fell > 0),
    full = math.max(left, was or left) > FULLEST * fullest, lacked = fullest - (was or left),
  }
  local own = { most = own_calls(row, axis, lease), one = one }
  row[axis .. '_left'], row[axis .. '_left_ms'] = left, lease.granted_ms
  row[axis .. '_renews_ms'], row[axis .. '_fullest'] = renews, fullest
  row[axis .. '_left_refills'] = refills and 1 or 0
  -- The usage of calls that were charged a guess is unknown.
  local certain = axis == 'requests' or not lease.uncertain and row[axis .. '_left_uncertain'] ~= 1
  row[axis .. '_left_uncertain'] = axis ~= 'requests' and lease.uncertain and 1 or 0
  if not was or since > 60000 or not certain then return false end
  local taken = taken_by_others(row, axis, report, own, fell, since)
  if not taken then return false end
  row[axis .. '_foreign'], row[axis .. '_foreign_ms'] = (1 - SMOOTHING) * before + SMOOTHING * taken, now
  return before == 0 and others_rate(row, axis) > 0
end
