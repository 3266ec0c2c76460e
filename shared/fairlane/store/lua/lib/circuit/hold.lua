-- Holds: waits that a provider asks for and that are too long to be believed, and used-up days of which nobody says
-- when they end. A held lane asks again with one probe at a time, by its circuit; an operator's resume ends the hold.
--   held_until_ms   until when the provider asked to wait, or when its day has ended at the latest
--   resumed_ms      when an operator resumed the lane: reports of earlier calls hold it no more
-- GIVES: longest_wait hold end_waits
-- USES: buckets/buckets circuit/circuit_constants lane/state

function longest_wait(limits)
  return (limits.longest_wait_seconds or LONGEST_WAIT_S) * 1000
end

-- Holds the lane until `until_ms`; its first probe starts after `probe_ms`.
local function shut(row, until_ms, probe_ms, now)
  row.circuit, row.open_ms = 'open', now + probe_ms
  row.held_until_ms = math.min(until_ms, LATEST_MS)
end

-- Holds a lane whose provider asks to wait for too long, or whose limit a day is used up while nobody says when the day
-- ends; not after calls from before an operator resumed it. `held_until_ms` is the end of the hold so far, if any: with
-- each probe in vain the time since a used-up day began doubles, up to the longest wait.
function hold(row, limits, lease, hints, asked_ms, held_until_ms, now)
  if lease.granted_ms < (row.resumed_ms or 0) then return end
  local longest_ms = longest_wait(limits)
  if asked_ms > longest_ms then return shut(row, now + asked_ms, longest_ms, now) end
  if asked_ms > 0 or hints.exhausted ~= 'day' or hints.day and hints.day[3] > 0 then return end
  local until_ms = held_until_ms and held_until_ms > now and held_until_ms or now + HELD_DAY_MS
  shut(row, until_ms, math.min(math.max(DAY_FIRST_MS, now + HELD_DAY_MS - until_ms), longest_ms), now)
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
  redis.call(
    'HDEL', key, 'blocked_ms', 'busy_ms', 'named_ms', 'firm_ms', 'wait_until_ms', 'wait_try_ms', 'again_ms',
    'held_until_ms', 'day_shut_ms')
  write_hash(key, change)
end
