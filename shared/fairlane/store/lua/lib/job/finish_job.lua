-- Finishes a job: its terminal record, its evaluations, and the end of its item, its session and its run.
-- GIVES: finish_job
-- USES: job/follow_up job/job_record run/role_times run/sessions

-- `follow` and `joined` are JSON as attempt_finish describes them; `queues` has one queue for each ready evaluation,
-- and then one for each evaluation in `joined`. Returns whether the run has ended, too.
function finish_job(lease, state, payload, follow, joined, queues, now)
  if not record_job(lease.job, state, payload, lease.lane) then return false end -- it was queued twice
  job_ended(lease.job, now)
  local used = follow ~= '[]' and follow_up(lease.ref, cjson.decode(follow), queues, now) or 0
  local session = joined ~= '' and cjson.decode(joined) or nil
  return finish_item(lease.ref, lease.job, now, session, { unpack(queues, used + 1) })
end
