-- Ends an attempt, and requeues its job for another one, unless its attempts are used up.
-- KEYS: clock leases leased lane limits owed in_flight headroom_tokens headroom_input headroom_output dirty starved
--       state jobs delayed hot budget
-- ARGV: now_ms channel attempt worker signal sent used_input used_output used_cached retry_after_ms hints reason
--       deadline_ms proxy_ms refusal delay_ms cost max_attempts limited handle
-- MERGES: a worker sends many of a run and lane at once
-- HOLDS: each reads and changes the lane
-- FUNCTION: a worker calls it for each call that is refused or fails
-- USES: circuit/control core/time job/rejections job/report job/retry run/blame
-- RETURNS: JSON {in_flight (of the lane), news (of the lane), finished: false}; nil for a late report, which changes
--          nothing. With `exhausted`, its `max_attempts`, nothing has changed either: the worker finishes the job.
-- `cost` is what the call costs its job (lib/run/blame.lua) of `max_attempts` (0: any number); a rejected job
-- may end before that. A "control" costs nothing: it was not the job's own call. Nor does one "withdrawn", whose
-- worker alone is denied access: its lane learns nothing. `limited` (0 or 1) is
-- added to its rate limits; tokens that are unknown are -1. `deadline_ms` is the run's, if that ended the call, and
-- `proxy_ms` the time after which the provider or its proxy did (0: it did not). `hints` are the limits that the
-- provider reported (fairlane.model.hints), or ''. `handle` names an asynchronous call that the next attempt resumes;
-- '' if it makes a new call.
local now, delay = clock(ARG.now_ms, KEY.clock), tonumber(ARG.delay_ms)
local lease, outcome = reported(now, {
  list = { KEY.hot, KEY.headroom_tokens, KEY.headroom_input, KEY.headroom_output }, set = { KEY.dirty, KEY.starved },
  hash = { KEY.jobs, KEY.limits, KEY.in_flight, KEY.owed }, zset = { KEY.leases, KEY.delayed },
})
if not lease then return false end
if ARG.cost == 'control' then note_control(outcome.signal == 'ok') end
local cost = outcome.too_short and 'attempt' or outcome.late and 'nothing' or ARG.cost
if cost == 'withdrawn' then cost, lease.withdrawn = 'nothing', true end
local spent, max_attempts = charge_attempt(lease, cost, now, ARG.refusal), tonumber(ARG.max_attempts)
if spent.ends then return report_reply('', false, spent.ends) end
if max_attempts > 0 and spent.attempts >= max_attempts then return report_reply('', false, max_attempts) end

-- With cost "nothing", the answer named a parameter: the next call, without that parameter, decides.
outcome.undecided = cost == 'nothing'
if lease.alike then outcome.signal = 'server_error' end
local goes_on = ARG.handle ~= ''
local news = end_reported(lease, outcome, not goes_on and outcome.used or nil, now)
local again = cost ~= 'nothing' or outcome.late or outcome.signal == 'overloaded'
redis.call('HINCRBY', KEY.state, 'retries', again and 1 or 0)
redis.call('HINCRBY', KEY.state, 'rate_limits', ARG.limited)
spent.limited, spent.handle = spent.limited + ARG.limited, goes_on and ARG.handle or nil
if is_rejection(outcome.signal) then charge_rejection(spent, lease, now) end
local used = not goes_on and outcome.used
if used and (used.input >= 0 or used.output >= 0) then
  for place, count in ipairs({ 1, used.input, used.output, used.cached }) do
    spent.unkept[place] = spent.unkept[place] + math.max(0, count)
  end
end
delay = math.max(delay, lease.waits_ms or 0)
requeue(lease, spent, KEY.hot, KEY.delayed, delay > 0 and now + delay)
return report_reply(news, false)
