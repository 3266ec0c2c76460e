-- The window of a lane whose concurrency limit is unknown. It begins with few calls, or with what latency suggests, and
-- grows while more calls in flight bring more answers a second. In a lane's hash:
--   search_window                  the window; without it, `first_concurrency` of its limits
--   search_by                      'latency' where latency has set it (concurrency/latency)
--   search_base, search_flow       the window before it was widened, and its answers a ms; empty while nothing is tried
--   search_n, search_ms            the last permit that does not count, as the window was not full, and when it was set
--   search_count, search_took_ms   answers since, and the sum of their times
--   search_rest                    answers for each call of the window until the next try
-- GIVES: searched_window climb_search_window
-- USES: concurrency/detector_constants lane/state

-- The window; infinite on a lane that has none.
function searched_window(row, limits)
  return known(row.search_window) or tonumber(limits.first_concurrency or '') or math.huge
end

-- Sets the window. Calls that start before it is full show nothing about it.
local function set_search_window(row, window, base, flow, now)
  local filling = math.max(0, window - (row.inflight or 0))
  row.search_window, row.search_base, row.search_flow = window, base, flow
  row.search_n, row.search_ms, row.search_count, row.search_took_ms = row.granted + filling, now, 0, 0
end

-- Takes back a widening. The next try is half as large, and later each time.
local function take_back(row, now)
  row.search_rest = math.min(SEARCH_RESTS, math.max(SEARCH_REST, 2 * (known(row.search_rest) or 0)))
  set_search_window(row, row.search_base, '', '', now)
end

-- Notes an answer, unless another limit (`most`) is narrower. By Little's law, the answers a second of a full window
-- are its calls divided by their latency.
function climb_search_window(row, limits, most, lease, now)
  local window, base = searched_window(row, limits), known(row.search_base)
  if window == math.huge or row.stop ~= 'window' then return end
  local narrower, refused = most < window, (known(row.last_ms) or 0) > (row.search_ms or now)
  if base and (narrower or refused) then return take_back(row, now) end
  if narrower or lease.n <= (row.search_n or 0) then return end
  row.search_count = (row.search_count or 0) + 1
  row.search_took_ms = (row.search_took_ms or 0) + math.max(1, lease.took_ms or now - lease.granted_ms)
  local rest = not base and known(row.search_rest)
  if row.search_count < (rest or SEARCH_ANSWERS) * window then return end
  local flow = window * row.search_count / row.search_took_ms
  if base and flow < (1 + SEARCH_GAIN * (window / base - 1)) * row.search_flow then return take_back(row, now) end
  if base then row.search_rest, row.knee_factor = '', 2 end
  set_search_window(row, rest and math.ceil(1.5 * window) or 2 * window, window, flow, now)
end
