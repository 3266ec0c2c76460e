-- Late calls: their run's deadline or a proxy's (504) ended them because the server queues more than it can answer in
-- time. By Little's law it does, if it answered fewer calls meanwhile than were in flight when the call started. The
-- lane then gets a window in which calls are answered in half of that time. In a lane's hash:
--   late_ms, late_n   the deadline, and the latest permit when the window was narrowed
--   late_to           the window once a call that started later is answered. Many servers continue abandoned calls,
--                     so one call at a time shows when these are done
--   late_left         how many more calls may be late alone, until the window is removed: they do not queue
--   late_calls        late calls since the window was narrowed
--   late_crowd        calls in flight at that time
--   late_off_ms       until when it is not narrowed again
-- GIVES: is_late
-- USES: concurrency/detector_constants core/tries
-- NEEDS: KEY.headroom_input KEY.headroom_output KEY.headroom_tokens KEY.lane KEY.limits

local function read_lane(...)
  local found = redis.call('HMGET', KEY.lane, ...)
  for i = 1, select('#', ...) do found[i] = tonumber(found[i] or '') end
  return unpack(found, 1, select('#', ...))
end

-- Narrows the window to one call at a time, and then to as many as were answered in half of the time.
local function narrow(deadline_ms, answered, granted, in_flight)
  redis.call('HSET', KEY.lane, 'window', 1, 'window_by', 'deadline', 'window_age_ms', 0, 'window_step', 1,
    'window_from', granted, 'window_base', '', 'late_ms', deadline_ms, 'late_n', granted,
    'late_to', math.max(1, math.floor(answered / 2)),
    'late_left', LATE_MORE + math.ceil(in_flight / answered), 'late_calls', 1, 'late_crowd', in_flight)
end

-- Counts a call that was late alone. Returns whether the server may still work on abandoned calls. If it cannot, calls
-- do not queue, and the window is removed. A proxy's 504 also counts as a failure, since it sends one if its server is
-- down; it may narrow the window again at once.
local function awaits_dead_calls(left, by_proxy, now)
  redis.call('HINCRBY', KEY.lane, 'late_calls', 1)
  if left > 1 then
    redis.call('HSET', KEY.lane, 'late_left', left - 1)
    return not by_proxy
  end
  redis.call('HSET', KEY.lane, 'window', '', 'late_to', '', 'late_off_ms', by_proxy and 0 or now + LATE_OFF_MS)
  return false
end

-- Whether the server's queue made a call late, and not its row or too short a deadline. `by_proxy`: the deadline is not
-- the run's.
function is_late(lease, deadline_ms, by_proxy, now)
  local ok, usual_ms, granted, in_flight, last, to, left, off_ms = read_lane(
    'seen_ok', 'usual_ms', 'granted', 'inflight', 'late_n', 'late_to', 'late_left', 'late_off_ms')
  if not usual_ms or usual_ms > LATE_USUAL * deadline_ms then return false end
  try_keys({ hash = { KEY.limits }, list = { KEY.headroom_tokens, KEY.headroom_input, KEY.headroom_output } })
  if last and lease.n <= last then
    redis.call('HINCRBY', KEY.lane, 'late_calls', 1)
    return true
  end
  if to and redis.call('HGET', KEY.lane, 'window_by') == 'deadline' then
    return awaits_dead_calls(left, by_proxy, now)
  end
  local answered = ok - (lease.ok or 0)
  if answered < 1 or answered >= lease.inflight or now < (off_ms or 0) then return false end
  narrow(deadline_ms, answered, granted, in_flight)
  return true
end
