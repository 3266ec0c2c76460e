-- Budgets over time: what a team may use in a day or a month (UTC), on one lane or on all ('*'). A hash for each
-- team:
--   limit <per> <unit> <lane>           what it may use; units are requests, tokens and usd
--   used <per> <period> <unit> <lane>   what it has used and what calls in flight have reserved; usd in billionths
--   held <per> <unit> <lane>            the period in which the budget delays a job
--   logged <per> <unit> <lane>          the period and the state of the latest log event
--   configured                          the budgets in the team's configuration
--   held_lanes, swept                   lanes to wake after a refund; the day of the last sweep
-- A grant reads it and charges it (lib/team/budget_charge.lua); lib/team/budget_true_up.lua refunds.
-- GIVES: budget_of
-- USES: core/calendar core/time

local DAY_MS = 86400000

-- Deletes usage from before the previous period: no call is in flight for so long.
local function sweep(key, fields, today)
  local name = period_of('day', today)
  if fields.swept == name then return end
  redis.call('HSET', key, 'swept', name)
  for field in pairs(fields) do
    local per, period = string.match(field, '^used (%S+) (%S+) ')
    if per then
      local _, first = period_of(per, today)
      if period < period_of(per, first - 1) then redis.call('HDEL', key, field) end
    end
  end
end

-- A team's budgets that apply to a lane, read once a script; nil if there are none.
function budget_of(key, lane, now)
  CALL.budgets = CALL.budgets or {}
  if CALL.budgets[key] ~= nil then return CALL.budgets[key] or nil end
  local flat, fields, today, lines = redis.call('HGETALL', key), {}, math.floor((now - ahead_ms()) / DAY_MS), {}
  for i = 1, #flat, 2 do fields[flat[i]] = flat[i + 1] end
  for field, most in pairs(fields) do
    local per, unit, scope = string.match(field, '^limit (%S+) (%S+) (.+)$')
    if per and (scope == '*' or scope == lane) then
      local period, _, over = period_of(per, today)
      lines[#lines + 1] = {
        per = per, unit = unit, scope = scope, period = period, until_ms = over * DAY_MS + ahead_ms(),
        most = tonumber(most),
      }
    end
  end
  if #lines > 0 then sweep(key, fields, today) end
  local budget = #lines > 0 and { key = key, lane = lane, lines = lines, fields = fields }
  CALL.budgets[key] = budget
  return budget or nil
end
