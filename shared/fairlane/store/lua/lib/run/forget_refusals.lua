-- Forgets which models rejected a run's calls, so that the run tries some calls to each of them again.
-- GIVES: forget_refusals
-- NEEDS: KEY.state

-- Returns the number of these models.
function forget_refusals()
  local count = 0
  for _, field in ipairs(redis.call('HKEYS', KEY.state)) do
    local model = string.match(field, '^rejected:(.*)')
    if model then count = count + redis.call('HDEL', KEY.state, field) end
    if model then redis.call('HDEL', KEY.state, 'first:' .. model) end
  end
  return count
end
