-- What a provider charges for a call's tokens.
-- GIVES: charge_of final_charge

-- What a provider charges for the `used` tokens of a call ({input, output, cached}; -1 is unknown) for which
-- `reserved` was charged when it started: {input, output}. The reference is fairlane_workers/probe/charge.py.
function charge_of(limits, used, reserved)
  local input, output = reserved.input, reserved.output
  if used.input >= 0 then
    local free = limits.cache_reads ~= 'counted' and math.max(0, used.cached) or 0
    input = math.max(0, used.input - free)
  end
  if used.output >= 0 then
    local burnt = math.ceil(used.output * (limits.output_factor or 1))
    output = limits.charge == 'reserved' and math.max(burnt, output) or burnt
  end
  return { input = input, output = output }
end

-- What the provider has charged in the end for an attempt: nothing for what was never sent (`used` is nil) and for
-- what it rejected, unless it reports tokens all the same.
function final_charge(limits, lease, signal, used)
  local free = signal == 'limited' or signal == 'overloaded' or signal == 'server_error' or signal == 'refused'
    or signal == 'unsent'
    or signal == 'answered' and used and used.input < 0 and used.output < 0
  if free or not used then return { input = 0, output = 0 } end
  return charge_of(limits, used, lease.charged)
end
