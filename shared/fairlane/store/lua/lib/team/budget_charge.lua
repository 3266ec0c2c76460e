-- Checks a job against its team's budgets (lib/team/budget.lua) before it starts, and charges it once it does.
-- GIVES: over_budget charge_budget
-- USES: core/time run/price tokens/expected_lengths

local BILLION = 1e9

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

-- 'team_budget' if a job would exceed budgets of its team, and when the last of their periods ends.
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
