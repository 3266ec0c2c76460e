-- The most concurrent calls of a lane: configured, reported or detected; if none of these is known, search_window.lua
-- decides. The detected limit is the window, which concurrency_trial.lua, late.lua and overload.lua narrow. In a lane's
-- hash:
--   window, window_by              the window, and what narrowed it: refusals | overload | deadline
--   window_age_ms, window_from     for how long it has limited jobs, and the permits granted before
--   window_step, window_base       by how many calls it is widened next, and what it was before it was widened
--   fitted, beyond                 the latest window that was widened, and the calls that went through beyond it since
--   window_top                     the most to which successes widen it after an overload
--   at_once_named                  the limit that the latest 429 for it named, if any
--   widen_ms                       for how many ms it limits jobs after an overload, or such a 429, until it is widened
-- GIVES: climb_window narrow_window concurrency_limit
-- USES: concurrency/deadline_window concurrency/detector_constants concurrency/hung concurrency/lasting_429s
--       concurrency/search_window lane/state

function narrow_window(row, limit, by)
  row.window, row.window_by, row.window_age_ms, row.window_step = math.max(1, limit), by, 0, 1
  row.window_from, row.window_base = row.granted or 0, ''
end

-- The learned window. A window that overloads narrowed does not bound a probe: a call from before an outage may hang.
local function learned_window(row)
  local probing = (row.circuit or 'closed') ~= 'closed'
  return not (probing and row.window_by == 'overload') and known(row.window) or math.huge
end

-- The most concurrent calls that are configured, reported or detected; and the most without those detected.
local function known_limit(row, limits)
  local most = math.min(limits.max_concurrency or math.huge, known(row.concurrency_reported) or math.huge)
  if limits.exact == 1 and limits.max_concurrency then return most, most end
  return math.min(most, learned_window(row), most_while_rejected(row)), most
end

-- Widens the window by one for each call that goes through beyond its former size, as slow start does (RFC 5681): the
-- limit has risen. After overloads, each call widens it up to `window_top`.
function climb_window(row, limits, lease, now)
  climb_search_window(row, limits, known_limit(row, limits), lease, now)
  if not known(row.window) then return end
  if row.window_by == 'deadline' then return climb_in_time(row, lease, now) end
  if row.stop ~= 'window' then return end
  local overload = row.window_by == 'overload'
  if lease.n <= ((overload and row.busy_n or row.sign) or 0) then return end
  if known(row.window_base) and lease.inflight > row.window_base then
    row.window, row.widen_ms = row.window + 1, WIDEN_SOON_MS
  elseif overload and row.window < row.window_top then
    row.window = row.window + 1
  end
end

-- The most concurrent calls; how many in flight hang, which fill no learned window; and the most that are configured or
-- reported. Infinite without a limit.
function concurrency_limit(row, limits)
  local limit, most = known_limit(row, limits)
  local hung = hung_calls(row)
  return math.min(most, math.min(limit, searched_window(row, limits)) + hung), hung, most
end
