-- Whether a run's calls are right, so that a rejection in words that others meet may be the lane's (circuit/alike).
-- GIVES: is_proven
-- USES: run/model_refusals run/state_fields
-- NEEDS: KEY.state

-- A job of the run has succeeded, and where a call was one of the first to its model, that has answered since. Where
-- the lane is shut, its state says enough of calls that were not among the first.
function is_proven(lease, shut)
  if shut and not lease.learns then return true end
  if not field_of(KEY.state, 'n:succeeded') then return false end
  return not lease.learns or redis.call('HEXISTS', KEY.state, (refusal_fields(lease.kind, lease.lane))) == 1
end
