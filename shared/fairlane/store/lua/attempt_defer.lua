-- Ends an attempt without its job: the job waits and is tried again. A deferral by itself costs no attempt.
-- KEYS: leases leased lane limits owed flying headroom_tokens headroom_input headroom_output dirty starved state jobs delayed hot budget
-- ARGV: now_ms channel attempt worker signal used_input used_output used_cached retry_after_ms hints reason delay_ms attempts limited handle
-- USES: time wake bucket rate lane tokens refund shape climb openings refusal window places latency hints circuit flying lease share teach leave settle tried entry
-- RETURNS: {1, lane in flight, news of the lane} or {0} for a late report, which changes nothing.
-- `attempts` and `limited` (0 or 1) are added to what the job has spent; tokens that are unknown are -1.
-- `hints` is what the provider said of its limits (fairlane/hints.py), or ''. `handle` names the call that the next attempt
-- goes on with; where it is '', that begins anew.
local lease = held(ARG.attempt, ARG.worker)
if not lease then
  if redis.call('EXISTS', KEY.state) == 1 then redis.call('HINCRBY', KEY.state, 'late', 1) end
  return { 0 }
end
local now, delay = clock(ARG.now_ms), tonumber(ARG.delay_ms)
local used = {
  input = tonumber(ARG.used_input), output = tonumber(ARG.used_output), cached = tonumber(ARG.used_cached),
}
local news = teach(lease, ARG.signal, used, tonumber(ARG.retry_after_ms), ARG.hints, ARG.reason, now)
release(lease, ARG.attempt)
leave(lease)
local untried = ARG.signal == 'none' and tonumber(ARG.attempts) == 0
settle_budget(KEY.budget, lease, ARG.signal, not untried and used or nil)
redis.call('HINCRBY', KEY.state, 'retries', ARG.attempts)
redis.call('HINCRBY', KEY.state, 'rate_limits', ARG.limited)
local _, spent, limited = tried(KEY.jobs, lease.job)
local handle = ARG.handle ~= '' and ARG.handle or nil
note(KEY.jobs, lease.job, lease.number, spent + ARG.attempts, limited + ARG.limited, handle)
local entry = entry_of(lease)
if delay > 0 then
  local member = lease.ref .. '|' .. entry .. '|' .. lease.lane
  redis.call('ZADD', KEY.delayed, now + delay, member)
  if redis.call('ZRANK', KEY.delayed, member) == 0 then redis.call('PUBLISH', ARG.channel, '') end
else
  redis.call('LPUSH', KEY.hot, entry)
  wake(KEY.dirty, ARG.channel, lease.lane .. '|' .. lease.ref)
end
return { 1, tonumber(redis.call('HGET', KEY.lane, 'inflight')), news }
