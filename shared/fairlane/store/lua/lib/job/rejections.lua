-- A job whose calls are rejected by 429s, 503s or 529s. Each costs it nothing, since they are its lane's affair, unless
-- the lane answers others between two of them: then the job meets them alone, as a prompt too long for its server does.
-- Once it has met more of them alone than by chance, they teach the lane nothing (circuit/own_limits), and the job
-- waits longer after each (fairlane.model.decision). In a lane's hash:
--   own_rejected   rejections that taught it nothing
-- GIVES: size_of is_rejection note_rejection meets_alone
-- NEEDS: KEY.lane

local BY_CHANCE = 0.1 -- the most chance that a job meets as many alone where all jobs are rejected alike

-- Tokens that a lease's call was expected to have.
function size_of(lease)
  return lease.charged.input + lease.charged.output
end

function is_rejection(signal)
  return signal == 'limited' or signal == 'overloaded'
end

-- Counts the lease's call, which was rejected. A small answer does not show that the lane had room for a large call.
function note_rejection(spent, lease)
  local answered_n, size = unpack(redis.call('HMGET', KEY.lane, 'answered_n', 'answered_size'))
  local others = tonumber(answered_n or 0) > spent.rejected_n
  local as_large = 2 * tonumber(size or 0) >= size_of(lease)
  if spent.rejected > 0 and others and as_large then spent.alone = spent.alone + 1 end
  spent.rejected, spent.rejected_n = spent.rejected + 1, lease.n
end

-- Whether a job's rejections are its own: more than a job meets by chance at the share of all other calls that the lane
-- rejects (with Laplace's rule of succession).
function meets_alone(spent, row)
  if spent.alone == 0 then return false end
  local own = row.own_rejected or 0
  local rejected = (row.seen_limited or 0) + (row.seen_overloaded or 0) - own
  return ((rejected + 1) / (row.granted - own + 2)) ^ spent.alone < BY_CHANCE
end
