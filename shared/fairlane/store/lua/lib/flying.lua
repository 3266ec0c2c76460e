-- Calls in flight by team, a hash for each lane: what teams hold of its window, and of the workers' slots.
-- GIVES: team_of take_off land

function team_of(ref)
  return string.match(ref, '^[^/]*')
end

function take_off(key, lease)
  redis.call('HINCRBY', key, team_of(lease.ref), 1)
end

function land(key, lease)
  local team = team_of(lease.ref)
  if redis.call('HINCRBY', key, team, -1) <= 0 then redis.call('HDEL', key, team) end
end
