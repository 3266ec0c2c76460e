-- Holds a run's jobs for a model if the provider rejected the run's first calls to it in the same words
-- (lib/run/model_refusals.lua). The jobs fail only once the witnesses (lib/run/first_calls.lua) have ended, too.
-- GIVES: HELD_BOUND model_of may_be_called is_ruled_out
-- USES: run/first_constants run/first_state run/model_refusals

HELD_BOUND = 'request_refused' -- the bound that a run reports on a lane if all its jobs there are held

-- Whether refusals hold a run's jobs of a call kind on a lane, and what is known of the first calls.
local function held_by_refusals(state, kind, lane)
  local _, rejected, field = refusal_fields(kind, lane)
  local past = redis.call('HGET', state, rejected)
  return past and cjson.decode(past).count >= ENOUGH_REFUSALS, read_first(state, field)
end

-- {held, learns, first} of an offer's model. `learns`: an answer to its call helps to decide whether to hold the model.
-- `first` as from read_first.
function model_of(offer, kind)
  offer.models = offer.models or {}
  if not offer.models[kind] then
    local answered = refusal_fields(kind, offer.lane)
    local model = { learns = not redis.call('HGET', offer.state, answered) }
    if model.learns then model.held, model.first = held_by_refusals(offer.state, kind, offer.lane) end
    offer.models[kind] = model
  end
  return offer.models[kind]
end

-- Whether a job is not held. A witness makes its next call even if the others are held.
function may_be_called(offer, entry)
  local model = model_of(offer, entry.kind)
  if not model.held then return true end
  for _, job in ipairs(model.first and model.first.witnesses or {}) do
    if job == entry.job then return true end
  end
  return false
end

-- Whether a run's jobs of a call kind must fail: they are held, and no witness is awaited.
function is_ruled_out(state, kind, lane)
  local held, first = held_by_refusals(state, kind, lane)
  return held and #(first and first.witnesses or {}) == 0
end
