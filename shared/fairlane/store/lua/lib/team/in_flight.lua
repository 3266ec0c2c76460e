-- Calls in flight by team, one hash per lane: each team's part of its window and of the workers' slots.
-- GIVES: team_of increment_in_flight decrement_in_flight

function team_of(ref)
  return string.match(ref, '^[^/]*')
end

function increment_in_flight(key, team, count)
  redis.call('HINCRBY', key, team, count)
end

function decrement_in_flight(key, lease)
  local team = team_of(lease.ref)
  if redis.call('HINCRBY', key, team, -1) <= 0 then redis.call('HDEL', key, team) end
end
