-- A refusal (429). Those of calls granted before the last one was heard of tell nothing new: one cut an epoch, and
-- `sign` is the number of the last call granted in the epoch before. The first call after it that is refused too
-- says that the lane is still shut; a later one, that it had opened in between.
-- GIVES: holding got_over refused_axis refused

local BACK_OFF_MS, BACK_OFF_MOST_MS, RARELY_MS = 100, 2000, 30000
local EDGE_MARGIN_MS = 20

-- How long the silence after a call must be for it to count as let through: refusals come back at once.
local function silence_ms(row)
  return math.ceil(4 * (row.refusal_ms or 100)) + 100
end

-- Where the lane is shut for longer than a moment, one call at a time finds out whether it still is.
function holding(row)
  if not known(row.shut) or row.refusals < 2 or not known(row.after_ms) then return nil end
  return row.after_ms + silence_ms(row)
end

-- Whether the provider has been silent for long enough after the first call since the last refusal.
function got_over(row, now)
  local after = known(row.shut) and known(row.after_ms)
  return after and now - after >= silence_ms(row)
end

-- The axis that a refusal is for, and its bucket's level: as the provider names it, else the emptiest bucket of those
-- that it could be.
function refused_axis(buckets, exhausted)
  local worst, least, levels = 'requests', 0.5, {}
  for _, bucket in ipairs(buckets) do
    local share = bucket.level / bucket.full
    levels[bucket.axis] = bucket.level
    if share < least then worst, least = bucket.axis, share end
  end
  for _, axis in ipairs(AXES) do
    if axis == exhausted then worst = axis end
  end
  return worst, levels[worst] or 0
end

-- When a lane that was refused tries again: the provider's word, a known boundary, or a pause that doubles.
local function try_again_ms(row, axis, retry_after_ms, now)
  row.again_ms = retry_after_ms > 0 and now + retry_after_ms or ''
  if retry_after_ms > 0 then return now + retry_after_ms end
  local most = math.min(RARELY_MS, math.max(BACK_OFF_MOST_MS, 30000 / row[axis .. '_est']))
  local again = now + math.min(most, BACK_OFF_MS * 2 ^ math.min(row.refusals - 1, 16))
  if windowed(row, axis) and row.refusals == 1 then again = math.max(again, row[axis .. '_edge_ms'] + EDGE_MARGIN_MS) end
  return again
end

-- What the first refusal of an epoch leaves behind: the axis, and how fast it went. Slow start overshoots by up to
-- twice; a number that somebody has stated does not.
local function begin_epoch(row, axis, rate, starting, lease, now)
  row.shut, row.first_ms, row.refusals = axis, lease.granted_ms, 1
  row.first, row.pace_then, row.epoch = row.last, rate, (row.epoch or 0) + 1
  note_fullness(row, axis, now)
  if not known(row[axis .. '_age_ms']) then
    local start = rate * (starting and STARTED_WITH or KEPT_OF_NEW)
    settle(row, axis, start, start * start, now)
    row.novice = 1
  end
  row.age_then = known(row[axis .. '_age_ms']) or 0
  row[axis .. '_age_ms'], row.proved = 0, 0
end

-- Learns from a refusal on `axis`, whose rate was `rate` a minute, in slow start if `starting`, and whose bucket held
-- `level`. Returns whether it began an epoch.
function refused(row, axis, rate, starting, level, lease, retry_after_ms, now)
  row.refusal_ms = 0.8 * (row.refusal_ms or 100) + 0.2 * (now - lease.granted_ms)
  if lease.n <= (row.sign or 0) then return false end
  local still = known(row.shut) and lease.n == row.sign + 1
  if still then axis = row.shut elseif known(row.shut) then learn_opening(row, now) end
  row.last_ms, row.last = lease.granted_ms, admitted_by(row, axis, lease)
  if still then
    row.refusals = row.refusals + 1
    miss_boundary(row, axis, lease.granted_ms)
  else
    begin_epoch(row, axis, rate, starting, lease, now)
  end
  row.sign, row.after_ms = row.granted, ''
  local again = try_again_ms(row, axis, retry_after_ms, now)
  row.blocked_ms = math.max(row.blocked_ms or 0, again)
  keep_level(row, axis, math.min(0, level), row.blocked_ms)
  return not still
end
