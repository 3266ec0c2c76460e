-- Forgets which models rejected a run's calls, so that the run tries some calls to each of them again.
-- GIVES: forget_refusals
-- NEEDS: KEY.state

-- Returns the number of these models.
function forget_refusals()
  local count = 0
  for _, field in ipairs(redis.call('HKEYS', KEY.state)) do
    if string.find(field, '^rejected:') then count = count + redis.call('HDEL', KEY.state, field) end
  end
  return count
end
