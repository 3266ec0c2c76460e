-- Finishes a job: its terminal record, its evaluations, and the end of its item, its session and its run.
-- GIVES: try_ending finish_job
-- USES: job/follow_up job/job_record run/role_times run/sessions
-- NEEDS: KEY.done KEY.finished KEY.jobs KEY.results KEY.run_lanes

-- Reads the run's keys that the end of `job` changes. A verb calls it before it changes anything: a key of a wrong type
-- raises an error, and the job stays where it is.
function try_ending(job, queues)
  redis.call('GETBIT', KEY.done, job)
  redis.call('HEXISTS', KEY.jobs, job)
  redis.call('HEXISTS', KEY.results, job)
  redis.call('LLEN', KEY.finished)
  if #queues > 0 then redis.call('SCARD', KEY.run_lanes) end
  for _, queue in ipairs(queues) do redis.call('LLEN', queue) end
end

-- `follow` and `joined` are JSON as attempt_finish describes them; `queues` has one queue for each ready evaluation,
-- and then one for each evaluation in `joined`. Returns whether the run has ended, too.
function finish_job(lease, state, payload, follow, joined, queues, now)
  if not record_job(lease.job, state, payload, lease.lane) then return false end -- it was queued twice
  job_ended(lease.job, now)
  local used = follow ~= '[]' and follow_up(lease.ref, cjson.decode(follow), queues, now) or 0
  local session = joined ~= '' and cjson.decode(joined) or nil
  return finish_item(lease.ref, lease.job, now, session, { unpack(queues, used + 1) })
end
