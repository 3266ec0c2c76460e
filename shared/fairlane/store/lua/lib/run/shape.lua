-- How many jobs a run's items have.
-- GIVES: steps_of_run role_of
-- USES: run/state_fields
-- NEEDS: KEY.state

-- Returns how many jobs an item has, and the first job of the sessions' evaluations, nil if there is none. Both are nil
-- if the run is deleted. Read once a script.
function steps_of_run()
  local steps = CALL.steps
  if not steps then
    read_fields(KEY.state, 'steps', 'first_session_job')
    steps = tonumber(field_of(KEY.state, 'steps') or '')
    CALL.steps, CALL.first_session_job = steps, tonumber(field_of(KEY.state, 'first_session_job') or '')
  end
  return steps, CALL.first_session_job
end

-- The role of a job's call, "task" or "eval"; nil if its run is deleted.
function role_of(job)
  local steps, first_session_job = steps_of_run()
  if not steps then return nil end
  return job % steps == 0 and job < (first_session_job or math.huge) and 'task' or 'eval'
end
