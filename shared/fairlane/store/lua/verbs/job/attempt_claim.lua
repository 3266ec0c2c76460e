-- Lets one worker start an attempt, once: any other copy of its message is stale.
-- KEYS: clock leases leased lane jobs state
-- ARGV: now_ms attempt job lane worker claim lease_ms
-- MERGES: a worker sends many of a run and lane at once
-- FUNCTION: a worker calls it for each call
-- USES: buckets/arrivals circuit/control core/time core/tries job/attempt_counts run/blame
-- RETURNS: JSON {attempts, unproven, rate_limits, rejected, alone, own, waited_ms, sendable, good_ms, hold_ms, paused,
--          handle, unkept, control} for the holder, nil for a stale claim. attempts … alone: the job's counts
--          (lib/job/attempt_counts.lua); `waited_ms`: since the grant; `sendable`: the call may be sent, `hold_ms` from
--          now at the earliest, and then for `good_ms`; `paused`: a pause of its run or lane forbids it; `handle`: of a
--          call that its provider still runs; `unkept`: {answers, input, output, cached} of answers that were not kept;
--          `control`: the call may repeat one that was answered before (lib/circuit/control.lua).
-- A message that names another `lane` than the permit is stale, too: that lane never granted the call.
-- `claim` identifies the request: sent again because its reply was lost, it gets the same reply. A second copy of the
-- message is another claim, even at the same worker.
local record = redis.call('HGET', KEY.leased, ARG.attempt)
if not record then return false end
local lease, now = cjson.decode(record), clock(ARG.now_ms, KEY.clock)
if lease.lane ~= ARG.lane or lease.worker and lease.claim ~= ARG.claim then return false end
local new, spent = not lease.claimed_ms, attempt_counts(KEY.jobs, ARG.job)
try_keys({ zset = { KEY.leases } })
if new then
  lease.claimed_ms = now
  if redis.call('HEXISTS', KEY.state, 'paused_ms') == 1 then
    lease.sendable, lease.good_ms, lease.paused = false, 0, true
  else
    lease.sendable, lease.good_ms, lease.paused, lease.hold_ms = charge_arrival(KEY.lane, lease, now)
  end
end
prove_failures(spent, lease)
lease.worker, lease.claim = ARG.worker, ARG.claim
if new then
  local more = {
    worker = lease.worker, claim = lease.claim, claimed_ms = now, flawed = lease.flawed, sendable = lease.sendable,
    good_ms = lease.good_ms, paused = lease.paused, hold_ms = lease.hold_ms,
  }
  record = string.sub(record, 1, -2) .. ',' .. string.sub(cjson.encode(more), 2)
else
  record = cjson.encode(lease)
end
redis.call('HSET', KEY.leased, ARG.attempt, record)
redis.call('ZADD', KEY.leases, now + tonumber(ARG.lease_ms), ARG.attempt)
return cjson.encode({
  attempts = spent.attempts, unproven = spent.unproven, rate_limits = spent.limited, rejected = spent.rejected,
  alone = spent.alone, own = lease.own,
  waited_ms = now - lease.granted_ms, sendable = lease.sendable, good_ms = lease.good_ms,
  paused = lease.paused, hold_ms = lease.hold_ms, handle = spent.handle,
  unkept = spent.unkept[1] > 0 and spent.unkept or nil,
  control = wants_control(lease),
})
