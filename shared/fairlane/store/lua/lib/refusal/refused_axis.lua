-- Finds the axis whose limit caused a 429.
-- GIVES: refused_axis
-- USES: buckets/buckets buckets/depth lane/state tokens/amounts

-- The axis of which the 429's own headers show less left than the call takes; of several, the one with least.
local function shown_exhausted(hints, lease)
  local found, least = nil, 1
  for _, axis in ipairs(AXES) do
    local hint, takes = hints[axis], axis == 'requests' and 1 or amount_on(axis, lease.charged)
    if hint and hint[1] > 0 and hint[2] >= 0 and hint[2] < takes * least then
      found, least = axis, hint[2] / takes
    end
  end
  return found
end

-- Returns the axis of a 429, the level of its bucket, and whether headers show that axis exhausted. It is the axis that
-- the provider names, else the one that it shows, else that of the emptiest bucket. If something else limited jobs, the
-- lane had saved more on the shown axis than its provider: its bucket becomes shallower.
function refused_axis(row, limits, hints, lease, now)
  local shown, found = shown_exhausted(hints, lease), {}
  local worst, least = shown or 'requests', shown and -math.huge or 0.5
  for _, bucket in ipairs(buckets_of(row, limits, now)) do
    local share = bucket.level / bucket.full
    found[bucket.axis] = bucket
    if share < least then worst, least = bucket.axis, share end
  end
  for _, axis in ipairs(AXES) do
    if axis == hints.exhausted then worst = axis end
  end
  local bucket, is_shown = found[worst], shown == worst
  if known(row[worst .. '_reported']) then row[worst .. '_flat_ms'] = now end
  local new = lease.n > (row.sign or 0)
  if is_shown and new and bucket and not bucket.configured and row.stop ~= worst then flatten(row, bucket) end
  return worst, bucket and bucket.level or 0, is_shown
end
