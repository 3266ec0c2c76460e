-- Trues up what an ended call was charged to its team's budgets (lib/team/budget.lua).
-- GIVES: true_up_budget
-- USES: core/time core/wake
-- NEEDS: KEY.dirty ARG.channel

-- What the call has used in the end. `used` is {input, output}, -1 where unknown; nil where it was never made. A
-- rejected call has used nothing but what is reported; else unknown amounts stay as they were reserved.
local function final_use(held, signal, used)
  if not used then return { requests = 0, tokens = 0, usd = 0 } end
  if used.input < 0 and used.output < 0 then
    local rejected = signal == 'limited' or signal == 'overloaded' or signal == 'server_error' or signal == 'refused'
    if rejected or signal == 'answered' then return { requests = rejected and 0 or 1, tokens = 0, usd = 0 } end
  end
  if used.input < 0 or used.output < 0 then return held.taken end
  local usd = math.ceil(used.input * held.prices[1] + used.output * held.prices[2])
  return { requests = 1, tokens = used.input + used.output, usd = usd }
end

-- Refunds what the call did not use to the periods in which it started, and wakes the lanes that waited for that.
function true_up_budget(key, lease, signal, used)
  local held = lease.budget
  if not held then return end
  local final, freed = final_use(held, signal, used), false
  for _, line in ipairs(held.of) do
    local unit, field = line[1], line[2]
    local off = final[unit] - held.taken[unit]
    if off ~= 0 and redis.call('HEXISTS', key, field) == 1 then
      redis.call('HINCRBY', key, field, whole(off))
      freed = freed or off < 0
    end
  end
  local lanes = freed and redis.call('HGET', key, 'held_lanes')
  if not lanes then return end
  redis.call('HDEL', key, 'held_lanes')
  for _, line in ipairs(held.of) do redis.call('HDEL', key, line[3]) end
  for lane in string.gmatch(lanes, '[^\n]+') do wake(KEY.dirty, ARG.channel, lane) end
end
