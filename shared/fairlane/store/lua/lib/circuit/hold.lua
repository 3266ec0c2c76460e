-- Holds: waits that a provider asks for and that are too long to be believed. A held lane asks again with one probe
-- each time its longest wait has passed, by its circuit; an operator's resume ends the hold.
--   held_until_ms   until when the provider asked to wait
--   resumed_ms      when an operator resumed the lane: reports of earlier calls hold it no more
-- GIVES: longest_wait hold end_waits
-- USES: buckets/buckets lane/state

local LONGEST_WAIT_S = 3600 -- s: an hour; what providers ask for is mostly minutes, and the end of a day is no wait
local LATEST_MS = 253402214400000 -- ms: the last day of the year 9999, beyond which there are no dates

function longest_wait(limits)
  return (limits.longest_wait_seconds or LONGEST_WAIT_S) * 1000
end

-- Holds a lane that the provider asks to wait for `asked_ms`, unless it asked before an operator resumed the lane.
function hold(row, limits, lease, asked_ms, now)
  if lease.granted_ms < (row.resumed_ms or 0) then return end
  row.circuit, row.open_ms = 'open', now + longest_wait(limits)
  row.held_until_ms = math.min(now + asked_ms, LATEST_MS)
end

-- Ends every wait of the lane at `key`; only its pause, where it is paused and not held: a block outlasts a pause. A
-- lane that was shut starts with empty buckets and a ramp, a `probing` one with the single call of its circuit.
function end_waits(key, limits, probing, now)
  local lane, change = read_hash(key), { resumed_ms = now }
  for _, field in ipairs({ 'fail_team', 'shut_teams', 'first_n', 'trial_n', 'suspect', 'refused_teams' }) do
    change[field] = ''
  end
  redis.call('HDEL', key, 'paused')
  if lane.paused == 1 and not probing and not known(lane.held_until_ms) then return end
  local circuit = (lane.circuit or 'closed') ~= 'closed'
  if not probing and (circuit or now < (lane.blocked_ms or 0)) then
    change.circuit, change.failures, change.ramp_ms = 'closed', 0, now
    empty_buckets(lane, limits, change, now)
  end
  redis.call('HDEL', key, 'blocked_ms', 'busy_ms', 'named_ms', 'again_ms', 'held_until_ms', 'day_shut_ms')
  write_hash(key, change)
end
