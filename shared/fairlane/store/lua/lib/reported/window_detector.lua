-- Detects whether a limit is a bucket or a window, from how long its 429s last. A bucket lets the next call through as
-- soon as it has earned one. A fixed window stays shut until its end, and then admits everything. A sliding window
-- admits as much as left it. If ends of 429s recur every minute, the window's boundary is known:
--   <axis>_edge_lo, _edge_hi, _edges   bounds of the latest boundary, and how many ends have agreed
--   <axis>_edge_ms, _edge              the next boundary, and the count at the last one
--   <axis>_minute_ms, _minute, _earlier  start of the present minute, the count at it, and the count a minute before
--   <axis>_edge_n, _minute_n, _earlier_n  the last call in each of these counts (lib/outcome/spending.lua)
--   <axis>_long_ms                     when 429s last lasted long
-- GIVES: may_be_window note_boundary has_window miss_boundary roll_windows sliding_count note_window_use
-- USES: lane/counts lane/state rate/constants

-- Notes that long 429s ended between `low` and `high`.
function note_boundary(row, axis, low, high, now)
  row[axis .. '_long_ms'] = now
  local was_low, was_high = known(row[axis .. '_edge_lo']), known(row[axis .. '_edge_hi'])
  local seen, lo, hi = 1, low, high
  if was_low then
    local turns = math.floor((low - was_low) / WINDOW_MS + 0.5)
    local later, sooner = math.max(was_low + turns * WINDOW_MS, low), math.min(was_high + turns * WINDOW_MS, high)
    if turns >= 1 and sooner >= later - AGREE_MS then
      seen = (row[axis .. '_edges'] or 0) + 1
      if sooner > later then lo, hi = later, sooner end
    end
  end
  row[axis .. '_edge_lo'], row[axis .. '_edge_hi'], row[axis .. '_edges'] = lo, hi, seen
  row[axis .. '_edge_ms'], row[axis .. '_edge'], row[axis .. '_edge_n'] = hi + WINDOW_MS, row.last, row.refused_n - 1
end

function has_window(row, axis)
  return (row[axis .. '_edges'] or 0) >= EDGES_ENOUGH
end

-- Whether 429s have lately lasted as long as those of a window.
function may_be_window(row, axis, now)
  return has_window(row, axis) or now - (row[axis .. '_long_ms'] or -LONG_AGO_MS) < LONG_AGO_MS
end

-- Forgets a boundary if a call was rejected well after it: the boundary is elsewhere.
function miss_boundary(row, axis, at_ms)
  local edge = (known(row[axis .. '_edge_ms']) or 0) - WINDOW_MS
  if known(row.in_window) and row.first_ms < edge and at_ms > edge + MISSED_MS then
    row[axis .. '_edges'], row.in_window = 0, ''
  end
end

-- Notes the counts at the start of a new window or minute.
function roll_windows(row, axis, count, now)
  local edge = known(row[axis .. '_edge_ms'])
  if edge and now >= edge then
    row[axis .. '_edge'], row[axis .. '_edge_n'] = count, row.granted
    row[axis .. '_edge_ms'] = edge + (math.floor((now - edge) / WINDOW_MS) + 1) * WINDOW_MS
  end
  local began = row[axis .. '_minute_ms']
  if began and now < began + 60000 then return end
  local one = began and now < began + 120000
  row[axis .. '_earlier'] = one and row[axis .. '_minute'] or count
  row[axis .. '_earlier_n'] = one and row[axis .. '_minute_n'] or row.granted
  row[axis .. '_minute_ms'] = one and began + 60000 or now
  row[axis .. '_minute'], row[axis .. '_minute_n'] = count, row.granted
end

-- The count admitted in the minute before the first of the present 429s, if the window may slide; else nil.
function sliding_count(row, axis, now)
  local long_ago = now - (row[axis .. '_long_ms'] or -LONG_AGO_MS) >= LONG_AGO_MS
  if long_ago or has_window(row, axis) then return nil end
  return known(row.last_minute)
end

-- Notes at the first 429 how much the window and the last minute had taken.
function note_window_use(row, axis, now)
  local taken = has_window(row, axis) and row.first - row[axis .. '_edge']
  if taken and taken < LEAST_FULL * (known(row[axis .. '_est']) or 0) * WINDOW_MS / 60000 then
    taken, row[axis .. '_edges'] = nil, 0
  end
  row.in_window = taken or ''
  local began = row[axis .. '_minute_ms'] or now
  local part = math.max(0, 1 - (now - began) / 60000)
  local minute = row[axis .. '_minute'] or row.first
  local before = minute - (row[axis .. '_earlier'] or minute) -- what the minute before took
  local last, one = row.first - minute + before * part, one_call(row, axis)
  local is_whole = now - (row.known_ms or now) > 60000
  row.last_minute = (is_whole or last >= ENOUGH_CALLS * one) and last or ''
end
