-- Budgets over time: what a team may use in a day or a month (UTC), on one lane or on all ('*'). A hash for each
-- team:
--   limit <per> <unit> <lane>           what it may use; units are requests, tokens and usd
--   used <per> <period> <unit> <lane>   what it has used and what calls in flight have reserved; usd in billionths
--   held <per> <unit> <lane>            the period in which the budget delays a job
--   logged <per> <unit> <lane>          the period and the state of the latest log event
--   configured                          the budgets in the team's configuration
--   held_lanes, swept                   lanes to wake when something is refunded; the day of the last sweep
-- A grant reads it and charges it; lib/team/budget_true_up.lua refunds.
-- GIVES: budget_of over_budget charge_budget
-- USES: core/calendar core/time lane/expected_lengths run/price

local DAY_MS, BILLION = 86400000, 1e9

-- Forgets what was used before the last period but one: no call is in flight for so long.
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

-- A team's budgets that bind on a lane, read once a script; nil where there are none.
local read_before = {}
function budget_of(key, lane, now)
  if read_before[key] ~= nil then return read_before[key] or nil end
  local flat, fields, today, lines = redis.call('HGETALL', key), {}, math.floor(now / DAY_MS), {}
  for i = 1, #flat, 2 do fields[flat[i]] = flat[i + 1] end
  for field, most in pairs(fields) do
    local per, unit, scope = string.match(field, '^limit (%S+) (%S+) (.+)$')
    if per and (scope == '*' or scope == lane) then
      local period, _, over = period_of(per, today)
      lines[#lines + 1] = {
        per = per, unit = unit, scope = scope, period = period, until_ms = over * DAY_MS, most = tonumber(most),
      }
    end
  end
  if #lines > 0 then sweep(key, fields, today) end
  local budget = #lines > 0 and { key = key, lane = lane, lines = lines, fields = fields }
  read_before[key] = budget
  return budget or nil
end

local function used_field(line, unit)
  return table.concat({ 'used', line.per, line.period, unit, line.scope }, ' ')
end

local function held_field(line, unit)
  return table.concat({ 'held', line.per, unit, line.scope }, ' ')
end

-- The most that a job can use, by unit.
local function most_use(budget, entry, state)
  local input, output = price_of(state, entry.kind)
  input, output = input * BILLION / 1e6, output * BILLION / 1e6
  local most = most_tokens(entry, state)
  budget.prices = { input, output }
  return {
    requests = 1, tokens = most.input + most.output, usd = math.ceil(most.input * input + most.output * output),
  }
end

-- 'team_budget' where a job would exceed a budget of its team, and the end of the last period whose budget it would.
function over_budget(budget, entry, state)
  if not budget then return nil end
  local wanted, until_ms = most_use(budget, entry, state), nil
  for _, line in ipairs(budget.lines) do
    local most = line.unit == 'usd' and line.most * BILLION or line.most
    if tonumber(budget.fields[used_field(line, line.unit)] or 0) + wanted[line.unit] > most then
      redis.call('HSET', budget.key, held_field(line, line.unit), line.period)
      until_ms = math.max(until_ms or 0, line.until_ms)
    end
  end
  if not until_ms then return nil end
  local lanes = budget.fields.held_lanes or ''
  if not string.find('\n' .. lanes, '\n' .. budget.lane .. '\n', 1, true) then
    budget.fields.held_lanes = lanes .. budget.lane .. '\n'
    redis.call('HSET', budget.key, 'held_lanes', budget.fields.held_lanes)
  end
  return 'team_budget', until_ms
end

-- Charges a job that starts; the lease keeps the charge, for lib/team/budget_true_up.lua.
function charge_budget(budget, entry, state, lease)
  if not budget then return end
  local wanted, seen, of = most_use(budget, entry, state), {}, {}
  for _, line in ipairs(budget.lines) do
    local name = line.per .. ' ' .. line.scope
    if not seen[name] then
      seen[name] = true
      for unit, amount in pairs(wanted) do
        local field = used_field(line, unit)
        of[#of + 1] = { unit, field, held_field(line, unit) }
        budget.fields[field] = redis.call('HINCRBY', budget.key, field, whole(amount))
      end
    end
  end
  lease.budget = { of = of, taken = wanted, prices = budget.prices }
end
