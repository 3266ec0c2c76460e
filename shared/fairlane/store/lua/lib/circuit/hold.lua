-- Holds: a provider asks for a wait that is too long to be believed, a day's limit is used up and nobody names its end,
-- or access is denied to a lane that has answered with its key (circuit/access). A held lane sends one probe at a time,
-- by its circuit; an operator's resume ends the hold.
--   held_until_ms   until when the provider asked to wait, or the latest end of its day
--   held_from_ms    since when it is held; held_named is 1 if its provider named the wait
--   resumed_ms      when an operator resumed the lane: reports of earlier calls do not hold it again
--   parked_ms       since when it is parked; retry_ms: when its next probe goes; empty if none does
--   key_ms          when its credential last changed while it was parked
-- GIVES: longest_wait hold end_waits
-- USES: buckets/buckets circuit/circuit_constants lane/state

function longest_wait(limits)
  return (limits.longest_wait_seconds or LONGEST_WAIT_S) * 1000
end

-- Milliseconds until the next probe: as long as the hold since `from_ms`, so that it doubles, up to the longest wait.
local function probe_ms(from_ms, limits, now)
  return math.min(math.max(DAY_FIRST_MS, now - from_ms), longest_wait(limits))
end

-- Schedules the next probe of a parked lane: when its provider says, or soon. A lane that never answered with its key
-- stays parked: somebody must change the key.
local function ask_again(row, limits, lease, asked_ms, now)
  if not lease.probe and not rawget(row, 'parked') then return end
  if not row.answered_ms or row.answered_ms < (row.key_ms or 0) then
    row.parked_ms, row.retry_ms = '', ''
    return
  end
  row.parked_ms = known(row.parked_ms) or now
  local wait_ms = probe_ms(row.parked_ms, limits, now)
  row.retry_ms = math.min(now + (asked_ms > 0 and math.max(DAY_FIRST_MS, asked_ms) or wait_ms), LATEST_MS)
  row.circuit, row.open_ms, row.held_until_ms = 'open', row.retry_ms, ''
end

-- Holds the lane until `until_ms`, which the provider has `named` or not; `from_ms`: since when it has been held.
local function shut(row, limits, until_ms, named, from_ms, now)
  row.held_from_ms, row.held_named = from_ms or now, named and 1 or 0
  row.circuit, row.open_ms = 'open', math.min(now + probe_ms(row.held_from_ms, limits, now), until_ms)
  row.held_until_ms = math.min(until_ms, LATEST_MS)
  if not named then return end
  row.blocked_ms, row.named_ms = row.open_ms, row.open_ms
  empty_buckets(row, limits, row, now) -- they earn from now on: the probe does not wait for the named end
end

-- Holds a lane whose provider asks for too long a wait, or whose daily limit is used up and has no named end. Calls
-- from before an operator resumed the lane do not hold it. `held_until_ms`: the end of the present hold, if any.
function hold(row, limits, lease, hints, asked_ms, held_until_ms, now)
  if lease.granted_ms < (row.resumed_ms or 0) or lease.reopened or lease.withdrawn then return end
  if row.parked then return ask_again(row, limits, lease, asked_ms, now) end
  local from_ms = held_until_ms and known(row.held_from_ms)
  if asked_ms > longest_wait(limits) then return shut(row, limits, now + asked_ms, true, from_ms, now) end
  if asked_ms > 0 or hints.exhausted ~= 'day' or hints.day and hints.day[3] > 0 then return end
  local until_ms = held_until_ms and held_until_ms > now and held_until_ms or now + HELD_DAY_MS
  shut(row, limits, until_ms, false, from_ms, now)
end

-- Ends every wait of the lane at `key`. If it is paused and not held, ends only its pause: a block outlasts a pause. A
-- lane that was shut starts with empty buckets and a ramp, a `probing` one with a single probe.
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
