-- Calls that are rejected by 429s, 503s or 529s. They cost their job no attempt, since their lane is the cause. But if
-- the lane answers others between two of them, the job meets them alone (run/blame), as a prompt does that is too long
-- for its server. Once it has met more alone than chance explains, the lane learns nothing from them
-- (circuit/own_limits), and the job waits longer after each (fairlane.model.decision). In a lane's hash:
--   own_rejected   rejections from which it learned nothing
-- GIVES: size_of is_rejection

-- Tokens that a lease's call was expected to have.
function size_of(lease)
  return lease.charged.input + lease.charged.output
end

function is_rejection(signal)
  return signal == 'limited' or signal == 'overloaded'
end
