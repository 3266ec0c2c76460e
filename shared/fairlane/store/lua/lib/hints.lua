-- What providers say of their limits, in headers and bodies (fairlane/hints.py): {"<axis>": [limit, remaining,
-- reset_ms], "exhausted": axis}, where -1 is not told.
--   <axis>_told, _told_ms               the limit as told, and when
--   <axis>_left, _left_at, _left_ms, _renews_ms   what was left when, what we had admitted by then, when it renews
-- GIVES: learn_hints

local MOVED = 0.01
local APART_MS, SAME_RENEWAL_MS, FULLEST = 2000, 1500, 0.9
local SMOOTHING, SHARED_FROM = 0.3, 0.03

local function note_told(row, axis, limit, now)
  local was = known(row[axis .. '_told'])
  if was and math.abs(limit - was) > MOVED * was then
    row[axis .. '_est'], row[axis .. '_age_ms'], row[axis .. '_foreign'] = '', '', 0
    if row.shut == axis then row.shut = '' end
  end
  if was ~= limit then row[axis .. '_told'] = limit end
  row[axis .. '_told_ms'] = now
  -- What slow start had found is no estimate.
  if not was and not known(row[axis .. '_age_ms']) then row[axis .. '_est'] = '' end
end

-- Others use the same key where `remaining` falls faster than we call: what they take is left to them. A window says
-- when it renews, always the same moment; a bucket refills all the time, and says nothing while it is full.
local function note_left(row, axis, left, reset_ms, lease, now)
  local since = lease.granted_ms - (row[axis .. '_left_ms'] or -APART_MS)
  if since < APART_MS then return false end
  local was, count, renews = row[axis .. '_left'], admitted_by(row, axis, lease), lease.granted_ms + math.max(0, reset_ms)
  local told = row[axis .. '_told']
  local ours, fell = count - (row[axis .. '_left_at'] or 0), (was or left) - left
  local same = reset_ms > 0 and fell > 0 and math.abs(renews - (row[axis .. '_renews_ms'] or 0)) < SAME_RENEWAL_MS
  local fullest = math.max(left, row[axis .. '_fullest'] or 0)
  row[axis .. '_left'], row[axis .. '_left_at'], row[axis .. '_left_ms'] = left, count, lease.granted_ms
  row[axis .. '_renews_ms'], row[axis .. '_fullest'] = renews, fullest
  if not was then
    -- The lane has been started on a guess: what the provider has saved for us meanwhile may be spent.
    local ours_since = admitted(row, axis) - count
    keep_level(row, axis, math.max(0, left - ours_since - told * SPREAD_MS / 60000) * UNIT, now)
  end
  if not was or since > 60000 then return false end
  if not same and math.max(left, was) > FULLEST * fullest then return false end
  local before = row[axis .. '_foreign'] or 0
  local taken = (fell - ours) / since * 60000 + (same and 0 or told)
  local foreign = (1 - SMOOTHING) * before + SMOOTHING * math.max(0, math.min(told, taken))
  if foreign < SHARED_FROM * told then foreign = 0 end
  row[axis .. '_foreign'] = foreign
  return before == 0 and foreign > 0
end

-- Learns from what an answer says. Returns whether somebody else was found to use the same key.
function learn_hints(row, hints, lease, now)
  local shared = false
  for axis, told in pairs(hints) do
    local limit, left, reset_ms = told[1], told[2], told[3]
    if axis == 'concurrency' then
      if limit > 0 then row.places_told = limit end
    elseif axis == 'day' then
      if limit > 0 then row.day_rate = limit end
      if left == 0 and reset_ms > 0 then row.day_used, row.day_until_ms = limit > 0 and limit or row.day_used, now + reset_ms end
    elseif STATED[axis] and limit > 0 then
      note_told(row, axis, limit, now)
      if left >= 0 then shared = note_left(row, axis, left, reset_ms, lease, now) or shared end
    end
  end
  return shared
end
