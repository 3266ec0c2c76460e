-- Whether a run's requests are valid, so that rejections alike may be the lane's fault (circuit/alike).
-- GIVES: is_proven
-- USES: run/model_refusals run/state_fields
-- NEEDS: KEY.state

-- They are if a job of the run has succeeded and, for one of the first calls to a model, the model has answered. On a
-- shut lane, calls that were not among the first need no such proof.
function is_proven(lease, shut)
  if shut and not lease.learns then return true end
  if not field_of(KEY.state, 'n:succeeded') then return false end
  return not lease.learns or redis.call('HEXISTS', KEY.state, (refusal_fields(lease.kind, lease.lane))) == 1
end
