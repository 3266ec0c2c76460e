-- The window of a lane: how many of its calls may be in flight at once, where that was learned (lib/places.lua and
-- lib/latency.lua).
-- Latencies are told apart by length: the wait for an answer's first token is worth about so many more of them.
-- GIVES: FIRST_TOKEN narrow widen places

FIRST_TOKEN = 20
local PROBE_MS = 30000 -- a saturated window is widened this often: by one, two, four … until a refusal

function narrow(row, places, by)
  row.window, row.window_by, row.window_age_ms, row.window_step = math.max(1, places), by, 0, 1
end

-- Widens a window that has held jobs back for a while.
function widen(row, elapsed_ms)
  if not known(row.window) then return end
  row.window_age_ms = row.window_age_ms + elapsed_ms
  if row.window_age_ms < PROBE_MS then return end
  row.window, row.window_age_ms = row.window + row.window_step, 0
  row.window_step, row.floors = math.min(2 * row.window_step, row.window), 0
end

-- The most calls in flight at once.
function places(row, limits)
  local learned = not (limits.exact == 1 and limits.max_concurrency) and known(row.window) or math.huge
  return math.min(limits.max_concurrency or math.huge, learned, known(row.places_told) or math.huge)
end
