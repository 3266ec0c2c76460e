-- Refunds what an ended attempt took from its run's bounds (lib/run/bounds.lua), and wakes the lanes that wait for it.
-- GIVES: release_bounds
-- USES: core/wake run/price run/state_fields tokens/charges
-- NEEDS: KEY.dirty KEY.state ARG.channel

-- `used` is {input, output}, -1 if unknown; nil if the call was never sent, or continues in another attempt.
function release_bounds(lease, signal, used)
  add_to_field(KEY.state, 'in_flight', -1)
  if lease.task then add_to_field(KEY.state, 'tasks_in_flight', -1) end
  if lease.held then
    local tokens, cost = unpack(lease.held)
    local final = final_use(signal, used)
    if final.input then
      local input, output = price_of(KEY.state, lease.kind)
      redis.call('HINCRBYFLOAT', KEY.state, 'tokens', final.input + final.output - tokens)
      redis.call('HINCRBYFLOAT', KEY.state, 'cost', final.input * input + final.output * output - cost)
    end
  end
  local lanes = field_of(KEY.state, 'held_lanes')
  if not lanes then return end
  set_field(KEY.state, 'held_lanes', false)
  for lane in string.gmatch(lanes, '[^\n]+') do wake(KEY.dirty, ARG.channel, lane) end
end
