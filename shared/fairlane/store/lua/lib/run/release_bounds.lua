-- Refunds what an ended attempt took from its run's bounds (lib/run/bounds.lua), and wakes the lanes that wait for it.
-- GIVES: release_bounds
-- USES: core/wake run/price
-- NEEDS: KEY.dirty KEY.state ARG.channel

-- `used` is {input, output}, -1 where unknown; nil where nothing was used.
function release_bounds(lease, used)
  redis.call('HINCRBY', KEY.state, 'in_flight', -1)
  if lease.task then redis.call('HINCRBY', KEY.state, 'tasks_in_flight', -1) end
  if lease.held then
    local tokens, cost = unpack(lease.held)
    if used and used.input >= 0 and used.output >= 0 then
      local input, output = price_of(KEY.state, lease.kind)
      tokens = tokens - used.input - used.output
      cost = cost - used.input * input - used.output * output
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
