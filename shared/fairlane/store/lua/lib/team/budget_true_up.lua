-- Trues up what an ended call was charged to its team's budgets (lib/team/budget.lua).
-- GIVES: true_up_budget
-- USES: core/time core/wake tokens/charges
-- NEEDS: KEY.dirty ARG.channel

-- The call's actual usage, {requests, tokens, usd}; unknown tokens stay as they were reserved.
local function used_of(held, signal, used)
  local final = final_use(signal, used)
  if not final.input then return held.taken end
  local usd = math.ceil(final.input * held.prices[1] + final.output * held.prices[2])
  return { requests = final.requests, tokens = final.input + final.output, usd = usd }
end

-- Refunds what the call did not use to the periods in which it started, and wakes the lanes that waited for that. A
-- budget of another type loses nothing of the call, as it has nothing that could be corrected.
function true_up_budget(key, lease, signal, used)
  local held = lease.budget
  if not held or redis.call('TYPE', key).ok ~= 'hash' then return end
  local final, freed = used_of(held, signal, used), false
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
