-- The end of a call that its team's budgets (lib/allowance.lua) were charged for.
-- GIVES: settle_budget

-- What the call has used in the end. `used` is {input, output}, -1 where unknown; nil where it was never made. A call that
-- was turned away has used nothing but what is told; else what is unknown stands as it was reserved.
local function final_use(held, signal, used)
  if not used then return { requests = 0, tokens = 0, usd = 0 } end
  if used.input < 0 and used.output < 0 then
    local away = signal == 'limited' or signal == 'overloaded' or signal == 'refused'
    if away or signal == 'answered' then return { requests = away and 0 or 1, tokens = 0, usd = 0 } end
  end
  if used.input < 0 or used.output < 0 then return held.taken end
  local usd = math.ceil(used.input * held.prices[1] + used.output * held.prices[2])
  return { requests = 1, tokens = used.input + used.output, usd = usd }
end

-- What it did not use comes back to the periods in which it started, and whoever waited for that is told.
settle_budget = function(key, lease, signal, used)
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
