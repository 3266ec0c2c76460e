-- An attempt of a run ends: what it took of the run's bounds (lib/bounds.lua) is given back, and whoever waited for
-- that is told. `used` is {input, output}, -1 where unknown; nil where nothing was used.
-- GIVES: leave

function leave(lease, used)
  redis.call('HINCRBY', KEY.state, 'in_flight', -1)
  if lease.task then redis.call('HINCRBY', KEY.state, 'tasks_in_flight', -1) end
  if lease.held then
    local tokens, cost = unpack(lease.held)
    if used and used.input >= 0 and used.output >= 0 then
      local price = redis.call('HGET', KEY.state, 'price:' .. lease.kind)
      local input, output = string.match(price or '0 0', '^(%S+) (%S+)$')
      tokens = tokens - used.input - used.output
      cost = cost - used.input * tonumber(input) - used.output * tonumber(output)
    elseif used then
      tokens, cost = 0, 0
    end
    redis.call('HINCRBYFLOAT', KEY.state, 'tokens', -tokens)
    redis.call('HINCRBYFLOAT', KEY.state, 'cost', -cost)
  end
  local lanes = redis.call('HGET', KEY.state, 'held_lanes')
  if not lanes then return end
  redis.call('HDEL', KEY.state, 'held_lanes')
  for lane in string.gmatch(lanes, '[^\n]+') do wake(KEY.dirty, ARG.channel, lane) end
end
