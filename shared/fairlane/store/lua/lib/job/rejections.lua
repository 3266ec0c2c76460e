-- Calls that are rejected by 429s, 503s or 529s. Each costs its job nothing, since they are its lane's affair, unless
-- the lane answers others between two of them: then the job meets them alone (run/blame), as a prompt too long for its
-- server does. Once it has met more of them alone than by chance, they teach the lane nothing (circuit/own_limits), and
-- the job waits longer after each (fairlane.model.decision). In a lane's hash:
--   own_rejected   rejections that taught it nothing
-- GIVES: size_of is_rejection

-- Tokens that a lease's call was expected to have.
function size_of(lease)
  return lease.charged.input + lease.charged.output
end

function is_rejection(signal)
  return signal == 'limited' or signal == 'overloaded'
end
