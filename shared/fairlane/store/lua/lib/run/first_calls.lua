-- A run's first calls to a model: until one is answered, only as many start as the offer says. So a wrong request costs
-- only these calls (lib/run/held_models.lua). A provider rejects it soon, but may take long to answer a right one:
-- after some hundred ms, the number grows with time. Two of these calls are witnesses, from the middle and the end of
-- the queue: rows together at its head may all be wrong, and the others right.
-- GIVES: FIRST_BOUND first_until wants_witness start_first
-- USES: run/first_constants run/first_state run/held_models run/model_refusals

FIRST_BOUND = 'first_calls' -- the bound that a run reports on a lane meanwhile

-- Whether the number has grown so far since `until_ms` that it bounds nothing.
local function is_open(first, now)
  return now >= first.until_ms + FIRST_DOUBLINGS * FIRST_DOUBLED_MS
end

-- Until when a run starts no further call to a model; nil if one may start.
function first_until(offer, kind, now)
  local first = model_of(offer, kind).first
  if not first or first.started < first.most or is_open(first, now) then return nil end
  if now < first.until_ms then return first.until_ms end
  local doubled = math.floor((now - first.until_ms) / FIRST_DOUBLED_MS) + 1
  return first.started >= first.most * 2 ^ doubled and first.until_ms + doubled * FIRST_DOUBLED_MS or nil
end

-- Which witness the next call to a model is: "middle" or "last"; nil if none.
function wants_witness(offer, kind, now)
  local first = (offer.most_first or 0) > 0 and model_of(offer, kind).first
  if not first or first.started < ENOUGH_REFUSALS - WITNESSES or is_open(first, now) then return nil end
  return first.chosen == 0 and 'middle' or first.chosen < WITNESSES and 'last' or nil
end

-- Notes a call that starts and may be one of the first. `row`: the lane, which may know the time of its rejections.
-- Returns 1 if the call is a witness, else nil.
function start_first(offer, entry, row, now)
  if (offer.most_first or 0) == 0 then return nil end
  local model = model_of(offer, entry.kind)
  local first = model.first
  if not first then
    local hold_ms = math.max(FIRST_HOLD_MS, math.min(FIRST_HOLD_MOST_MS, FIRST_HOLD_OF * (row.rejects_ms or 0)))
    first = { started = 0, most = offer.most_first, until_ms = math.ceil(now + hold_ms), chosen = 0, witnesses = {} }
    model.first = first
  end
  local witness = entry.witness
  for _, job in ipairs(first.witnesses) do witness = witness or job == entry.job end
  if is_open(first, now) then return witness and 1 or nil end
  first.started = first.started + 1
  if entry.witness then
    first.chosen = first.chosen + 1
    table.insert(first.witnesses, entry.job)
  end
  local _, _, field = refusal_fields(entry.kind, offer.lane)
  write_first(offer.state, field, first)
  return witness and 1 or nil
end
