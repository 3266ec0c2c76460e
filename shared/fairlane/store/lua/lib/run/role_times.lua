-- How long a run's tasks and evaluations wait, and how long their calls take: counts and sums in the run's state.
-- GIVES: jobs_ready job_ended call_ended
-- USES: core/time run/shape run/state_fields
-- NEEDS: KEY.state

-- Fields by role, "task" or "eval": 'calls:' sent calls; 'calling_ms:' their time; 'open:' jobs that were queued and
-- have not ended; 'open_ms:' the sum of the times of all ends, less that of all times of queueing. So 'open_ms' plus
-- 'open' times the present time is the total time that jobs have waited or been called. Redis itself adds to 'open_ms',
-- which may exceed Lua's exact numbers.

-- Notes jobs that are queued for the first time.
function jobs_ready(role, count, now)
  if count == 0 then return end
  add_to_field(KEY.state, 'open:' .. role, count)
  redis.call('HINCRBY', KEY.state, 'open_ms:' .. role, whole(-count * now))
end

-- Notes the end of a job that was queued.
function job_ended(job, now)
  local role = role_of(job)
  if not role then return end
  add_to_field(KEY.state, 'open:' .. role, -1)
  redis.call('HINCRBY', KEY.state, 'open_ms:' .. role, whole(now))
end

-- Notes the end of an attempt; its time counts from its claim. `calls`: 1; 0 if its call continues in another attempt;
-- nil if nothing was sent. An attempt that was not sent, or that no worker claimed, does not count: it waited.
function call_ended(lease, now, calls)
  if not lease.claimed_ms or not calls then return end
  local role = role_of(lease.job)
  if not role then return end
  add_to_field(KEY.state, 'calls:' .. role, calls)
  add_to_field(KEY.state, 'calling_ms:' .. role, now - lease.claimed_ms)
end
