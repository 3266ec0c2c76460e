-- When a rejected lane tries again.
-- GIVES: try_again_ms
-- USES: lane/counts rate/constants reported/window_detector

-- The least wait in ms of a lane that has met many 429s in a row, compared with the calls that went through before. It
-- is the rate's time for a call, longer with each 429, or a part of the time without an admitted call: the limit may be
-- as slow, and may count rejected calls. Few 429s after many calls need no such wait: they show when a window ends.
local function patience_ms(row, axis, now)
  local calls = calls_a_minute(row, axis)
  local before = (row.first - (row[axis .. '_open'] or 0)) / one_call(row, axis)
  if row.refusals <= math.max(PROBES, PROBES_OF_CALLS * before) then return 0 end
  return math.min(SHUT_MOST_MS, math.max((row.refusals - 1) * 60000 / calls, (now - row.first_ms) / SHUT_PART))
end

-- When a rejected lane tries again: at the time that the provider names, at a known boundary, or after a pause that
-- doubles. A named wait doubles, too, while it proves too short.
function try_again_ms(row, axis, retry_after_ms, now)
  if retry_after_ms > 0 then
    local longest = math.max(retry_after_ms, RARELY_MS)
    local again = now + math.min(longest, retry_after_ms * 2 ^ math.min(row.refusals - 1, 16))
    row.again_ms = again
    return again
  end
  row.again_ms = ''
  local most = math.min(RARELY_MS, math.max(BACK_OFF_MOST_MS, 30000 / calls_a_minute(row, axis)))
  local pause_ms = math.min(most, BACK_OFF_MS * 2 ^ math.min(row.refusals - 1, 16))
  local again = now + math.max(pause_ms, patience_ms(row, axis, now))
  if has_window(row, axis) and row.refusals == 1 then
    again = math.max(again, row[axis .. '_edge_ms'] + EDGE_MARGIN_MS)
  end
  return again
end
