-- Jobs that fail without a call, each for a cause that still lasts:
--   refusals     refusals hold the run's jobs for its model (lib/run/held_models.lua)
--   outage       the lane is down since `down_ms`, without a break
--   unanswered   the job's own failures may be the lane's fault, as no later call was answered. Its circuit may be
--                closed, if too few jobs are left to open it
-- GIVES: cause_lasts take_uncalled
-- USES: core/tries job/attempt_counts run/held_models
-- NEEDS: KEY.delayed KEY.jobs KEY.lane KEY.queue KEY.state ARG.cause ARG.down_ms ARG.entry ARG.member ARG.name

-- Whether the cause of a job's end still lasts; `entry` is the job.
function cause_lasts(entry)
  if ARG.cause == 'refusals' then return is_ruled_out(KEY.state, entry.kind, ARG.name) end
  local circuit, down_ms, answered_n = unpack(redis.call('HMGET', KEY.lane, 'circuit', 'down_ms', 'answered_n'))
  if ARG.cause == 'outage' then
    return (circuit or 'closed') ~= 'closed' and tonumber(down_ms or '') == tonumber(ARG.down_ms)
  end
  local spent = attempt_counts(KEY.jobs, entry.job)
  return spent.unproven > 0 and spent.last > tonumber(answered_n or 0)
end

-- Tries the keys in `kinds` (core/tries), and removes the job from the index of delayed jobs, or from the head of its
-- queue. False if it is not there.
function take_uncalled(kinds)
  try_keys(kinds)
  if ARG.member ~= '' then return redis.call('ZREM', KEY.delayed, ARG.member) == 1 end
  if redis.call('LINDEX', KEY.queue, 0) ~= ARG.entry then return false end
  redis.call('LPOP', KEY.queue)
  return true
end
