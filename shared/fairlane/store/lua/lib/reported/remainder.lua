-- Lets a lane that started on a guess spend the remainder of its first report.
-- GIVES: spend_left
-- USES: buckets/arrival_true_up buckets/buckets buckets/token_bucket lane/counts lane/state rate/constants

-- Deepens the bucket of arrivals, too: its bounds are otherwise those of the latest permits.
local function deepen_arrivals(row, axis, full)
  local depth = axis .. '_depth'
  if row[depth] then row[depth] = math.max(row[depth], full) end
end

-- Begins the lift (lib/rate/lift.lua) higher if headers show the bucket's depth: a tighter limit rejects the burst that
-- they show.
local function hasten_lift(row, axis)
  local from = known(row[axis .. '_lift'])
  if from then row[axis .. '_lift'] = math.max(from, LIFT_SHOWN * row[axis .. '_reported']) end
end

-- Lets a lane that started on a guess spend one burst of the reported rate, and no more than is left. Every call so
-- far is a part of that burst. A configured limit is a ceiling: there the report only lowers the level.
function spend_left(row, limits, axis, left, lease, now)
  local configured, found = limits[CONFIGURED[axis]], nil
  for _, bucket in ipairs(buckets_of(row, limits, now)) do
    if bucket.axis == axis then found = bucket end
  end
  if not found or configured and limits.exact == 1 then return end
  local since = admitted(row, axis) - admitted_by(row, axis, lease)
  local reserve = row[axis .. '_reported'] * SPREAD_MS / 60000
  local most = math.max(0, left - since - reserve) * UNIT
  if not configured then
    local burst = found.full + found.pace * (now - lease.granted_ms) - admitted(row, axis) * UNIT
    local raised = math.max(0, math.min(burst, most) - found.level)
    raise_level(row, found, raised, now)
    if found.shown then
      deepen_arrivals(row, axis, found.full)
      hasten_lift(row, axis)
    end
    refund_arrival(row, row, axis, raised)
    found.level = row[axis .. '_level']
  end
  lower_level(row, found, most, math.max(now, row[axis .. '_ms'] or now))
end
