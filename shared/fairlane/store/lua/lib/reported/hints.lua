-- Learns from limits that providers report in headers and bodies (fairlane.model.hints):
-- {"<axis>": [limit, remaining, reset_ms], "exhausted": axis}; -1 is unknown.
--   day_rate, day_shut_ms                         the reported limit a day; until when the provider's day is used up
-- GIVES: learn_hints
-- USES: lane/state reported/others reported/quota reported/remainder reported/reported_limit reported/unnamed

local DAY_MS = 86400000

-- Learns from a report on the requests of a day. A configured limit is counted in days that end at midnight UTC: the
-- lane only waits for the end of the provider's day. Without a remainder, nobody knows when the provider's day began.
local function note_day(row, limits, limit, left, reset_ms, now)
  if limit > 0 and left >= 0 then row.day_rate = limit end
  if left ~= 0 or reset_ms <= 0 then return end
  local ends_ms = now + math.min(reset_ms, DAY_MS)
  if limits[CONFIGURED.day] then
    row.day_shut_ms = ends_ms
  else
    row.day_used, row.day_until_ms = limit > 0 and limit or row.day_used, ends_ms
  end
end

-- Assigns an unnamed report to its axis, once that is known; until then it is ignored. Without a period it is a quota.
local function name_unnamed(row, hints, lease, now)
  local hint = hints.unnamed
  if not hint then return end
  local axis = hint[1] > 0 and axis_of_unnamed(row, hint[1], hint[2], lease)
  hints.unnamed = nil
  if axis and not hints[axis] then hints[axis] = hint end
  local met = hints.exhausted == 'unnamed'
  if met then hints.exhausted = axis or nil end
  if hint[1] < 0 and note_quota(row, hint[2], hint[3], met, lease, now) then hints.exhausted = 'quota' end
end

-- Learns from the hints of an answer. Returns whether other clients of the same key were newly detected.
function learn_hints(row, limits, hints, lease, now)
  local shared = false
  name_unnamed(row, hints, lease, now)
  for axis, hint in pairs(hints) do
    local limit, left, reset_ms = hint[1], hint[2], hint[3]
    if axis == 'requests' and limit < 0 then
      if note_quota(row, left, reset_ms, hints.exhausted == axis, lease, now) then hints.exhausted = 'quota' end
    elseif axis == 'concurrency' then
      if limit > 0 and hints.exhausted ~= axis then row.concurrency_reported = limit end
    elseif axis == 'day' then
      note_day(row, limits, limit, left, reset_ms, now)
    elseif CONFIGURED[axis] and limit > 0 then
      note_reported(row, limits, axis, limit, now)
      if left >= 0 then
        local first = not row[axis .. '_left']
        shared = note_left(row, axis, left, reset_ms, lease, now) or shared
        if first then spend_left(row, limits, axis, left, lease, now) end
      end
    end
  end
  return shared
end
