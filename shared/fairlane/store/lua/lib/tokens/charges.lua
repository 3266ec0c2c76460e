-- A call's actual usage: the tokens that its provider charges, and what its run's and team's budgets count.
-- GIVES: charge_of final_charge final_use

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

local function is_rejected(signal)
  return signal == 'limited' or signal == 'overloaded' or signal == 'server_error' or signal == 'refused'
end

-- Whether a call that was sent has used no tokens: the request itself was wrong, and no usage is reported.
local function used_nothing(signal, used)
  return signal == 'answered' and used.input < 0 and used.output < 0
end

-- What budgets count for a call: {requests, input, output}. Tokens are nil, and stay as reserved, if the answer was
-- lost or reports no usage. `used` is nil if the call was never sent. A rejected call has used only what is reported.
function final_use(signal, used)
  if not used then return { requests = 0, input = 0, output = 0 } end
  if used.input >= 0 and used.output >= 0 then return { requests = 1, input = used.input, output = used.output } end
  if used.input >= 0 or used.output >= 0 then return { requests = 1 } end
  if is_rejected(signal) then return { requests = 0, input = 0, output = 0 } end
  return used_nothing(signal, used) and { requests = 1, input = 0, output = 0 } or { requests = 1 }
end

-- What the provider charged for an attempt, {input, output}: nothing if it was never sent (`used` is nil) or rejected.
-- For a wrong request, the reported usage counts.
function final_charge(limits, lease, signal, used)
  if not used or is_rejected(signal) or used_nothing(signal, used) then return { input = 0, output = 0 } end
  return charge_of(limits, used, lease.charged)
end
