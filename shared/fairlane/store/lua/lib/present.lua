-- A lane in the present: what time alone has changed since it was last asked for permits.
-- GIVES: come_to_now note_grant

-- Where jobs, not the limit, were scarce for a while, counting starts anew: what has been saved meanwhile is unknown.
local SLACK_MS = 1000
local function keep_slack(row, axis, count, elapsed_ms, now)
  if known(row.shut) then return end
  row[axis .. '_slack_ms'] = (row[axis .. '_slack_ms'] or SLACK_MS) + elapsed_ms
  if row[axis .. '_slack_ms'] < SLACK_MS then return end
  reopen(row, axis, now, count)
  row[axis .. '_slack_ms'], row[axis .. '_saved'] = 0, 1
end

-- Brings a lane up to now: rates grow older, windows turn, refusals are got over.
function come_to_now(row, limits, now)
  local elapsed = math.min(60000, now - (row.asked_ms or now))
  row.asked_ms, row.known_ms = now, row.known_ms or now
  if row.stop == 'window' then widen(row, elapsed) end
  for _, axis in ipairs(AXES) do
    if axis == 'requests' or known(row[axis .. '_est']) then
      local count = admitted(row, axis)
      turn(row, axis, count, now)
      if row.stop == axis then
        local most = allowed(row, limits, axis)
        if most then grow_older(row, axis, most, elapsed) end
        row[axis .. '_slack_ms'] = 0
      else
        keep_slack(row, axis, count, elapsed, now)
      end
    end
  end
  if got_over(row, now) then learn_opening(row, now) end
end

-- Notes that a permit is granted: the first since a refusal is what shows whether the lane is open.
function note_grant(row, now)
  if known(row.shut) and not known(row.after_ms) then row.after_ms = now end
end
