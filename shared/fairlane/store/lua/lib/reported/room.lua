-- Compares what answers show is left of a reported limit with what calls take. Where less is left than a call takes and
-- that lasts, the lane slows down before it is refused. Where 429s that showed the limit exhausted have lowered the
-- estimate, and more is left all the time, the lane returns to what is reported.
--   <axis>_watched              the latest permit when that was last judged: later calls show what came of it
--   <axis>_least, _least_ms     the least that was left since, and until when it is watched: to the end of a window
-- GIVES: watch_left
-- USES: lane/counts lane/state rate/constants rate/estimate_filter reported/room_constants reported/window_detector
--       tokens/amounts

local function watch_anew(row, axis)
  row[axis .. '_watched'], row[axis .. '_least'], row[axis .. '_least_ms'] = row.granted, '', ''
end

-- Slows the lane down by a little. The provider has nothing saved now, as after a 429, but nothing is refused.
local function slow_down(row, axis, reported, now)
  local est = math.min(reported, known(row[axis .. '_age_ms']) and row[axis .. '_est'] or reported)
  local slower = math.max((1 - LEFT_CUT) * est, (1 - LEFT_CUT_MOST) * reported)
  if slower >= est then return end
  set_estimate(row, axis, slower, (SURE * slower) ^ 2, now)
  row[axis .. '_age_ms'], row[axis .. '_climb_ms'], row[axis .. '_saved'] = 0, 0, 0
  row[axis .. '_shown'] = known(row[axis .. '_shown']) or row.granted
  mark_opening(row, axis, now, admitted(row, axis))
end

-- How long a window lasts from now.
local function lasts_ms(row, axis, reset_ms, now)
  if reset_ms >= 0 then return reset_ms end
  return may_be_window(row, axis, now) and WINDOW_MS or UNKNOWN_WINDOW_MS
end

-- Raises an estimate by the share of the limit that was never used.
local function return_to_report(row, axis, reported, share, now)
  local est = row[axis .. '_est'] * (1 + share)
  if est < UNDER_REPORTED * reported then return set_estimate(row, axis, est, row[axis .. '_var'], now) end
  row[axis .. '_est'], row[axis .. '_age_ms'] = '', ''
end

-- Judges what an answer to a call of `lease` shows to be left, of a limit that nobody has configured.
function watch_left(row, axis, left, reset_ms, lease, now)
  if known(row.shut) or lease.n <= math.max(row.sign or 0, row[axis .. '_watched'] or 0) then return end
  local reported, takes = row[axis .. '_reported'], 1
  if axis ~= 'requests' then takes = math.max(1, amount_on(axis, lease.charged)) end
  local fullest = math.max(left, row[axis .. '_fullest'] or 0)
  if left < takes then
    local lasts = reset_ms > takes / reported * 60000
    if lasts and fullest >= 2 * takes and row.stop == axis then slow_down(row, axis, reported, now) end
    return watch_anew(row, axis)
  end
  if not known(row[axis .. '_shown']) or not known(row[axis .. '_age_ms']) then return end
  local until_ms = known(row[axis .. '_least_ms']) or now + lasts_ms(row, axis, reset_ms, now)
  local least = math.min(left, known(row[axis .. '_least']) or left)
  row[axis .. '_least'], row[axis .. '_least_ms'] = least, until_ms
  if now < until_ms or lease.n < (row[axis .. '_watched'] or 0) + ROOM_CALLS then return end
  if least >= ROOM_LEFT * fullest then return_to_report(row, axis, reported, least / fullest, now) end
  watch_anew(row, axis)
end
