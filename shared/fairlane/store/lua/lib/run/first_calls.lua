-- Few of a run's first calls to a model start until one has an answer, where its offer says how many. So a wrong
-- request costs these and not all (lib/run/model_refusals.lua). A provider rejects it soon, and may take long to answer
-- a right one: the number grows by time alone, from some hundred ms on.
-- GIVES: FIRST_BOUND first_until start_first
-- USES: core/time run/first_constants run/model_refusals

FIRST_BOUND = 'first_calls' -- the bound that a run reports on a lane meanwhile

-- Whether a number that has grown since `until_ms` bounds nothing any more.
local function is_open(first, now)
  return now >= first.until_ms + FIRST_DOUBLINGS * FIRST_DOUBLED_MS
end

-- Until when a run starts no further call to a model; nil where one may start.
function first_until(offer, kind, now)
  local first = model_of(offer, kind).first
  if not first or first.started < first.most or is_open(first, now) then return nil end
  if now < first.until_ms then return first.until_ms end
  local doubled = math.floor((now - first.until_ms) / FIRST_DOUBLED_MS) + 1
  return first.started >= first.most * 2 ^ doubled and first.until_ms + doubled * FIRST_DOUBLED_MS or nil
end

-- Notes a call that starts and may be one of the first. `row` is the lane, which may know how long its rejections take.
function start_first(offer, kind, row, now)
  if (offer.most_first or 0) == 0 then return end
  local model = model_of(offer, kind)
  local first = model.first
  if not first then
    local hold_ms = math.max(FIRST_HOLD_MS, math.min(FIRST_HOLD_MOST_MS, FIRST_HOLD_OF * (row.rejects_ms or 0)))
    first = { started = 0, most = offer.most_first, until_ms = math.ceil(now + hold_ms) }
    model.first = first
  end
  if is_open(first, now) then return end
  first.started = first.started + 1
  local _, _, field = refusal_fields(kind, offer.lane)
  redis.call('HSET', offer.state, field, table.concat({ first.started, first.most, whole(first.until_ms) }, ':'))
end
