-- Holds a run's jobs for a model whose provider rejected the run's first calls to it in the same way. So a model that
-- does not exist, or a wrong parameter, costs a few calls and not all.
-- GIVES: HELD_BOUND refusal_fields held_by_refusals model_of
-- USES: core/time run/first_constants

-- Fields of a run's state, by call kind and lane:
--   answered:<kind>:<lane>   1 after any other answer; then the run's jobs for the model are never held
--   rejected:<kind>:<lane>   JSON {count, refusal, words}: equal rejections, while there is no other answer
--   first:<kind>:<lane>      "started:most:until_ms": how many calls have started, until they are any number, and how
--                            many may until then, while there is no other answer (lib/run/first_calls.lua)

HELD_BOUND = 'request_refused' -- the bound that a run reports on a lane if all its jobs there are held

-- The names of the three fields.
function refusal_fields(kind, lane)
  local model = whole(kind) .. ':' .. lane
  return 'answered:' .. model, 'rejected:' .. model, 'first:' .. model
end

-- Whether refusals hold a run's jobs of a call kind on a lane.
function held_by_refusals(state, kind, lane)
  local _, field = refusal_fields(kind, lane)
  local past = redis.call('HGET', state, field)
  return past and cjson.decode(past).count >= ENOUGH_REFUSALS
end

-- {held, learns, first} for the model of an offer's job. `learns`: the job's answer helps to decide whether to hold the
-- model. `first`: {started, most, until_ms}, nil where no call has started, or the model has answered.
function model_of(offer, kind)
  offer.models = offer.models or {}
  if not offer.models[kind] then
    local answered, _, field = refusal_fields(kind, offer.lane)
    local model = { learns = not redis.call('HGET', offer.state, answered) }
    if model.learns then
      model.held = held_by_refusals(offer.state, kind, offer.lane)
      local numbers = string.gmatch(redis.call('HGET', offer.state, field) or '', '%d+')
      local started, most, until_ms = numbers(), numbers(), numbers()
      model.first = started
        and { started = tonumber(started), most = tonumber(most), until_ms = tonumber(until_ms) }
    end
    offer.models[kind] = model
  end
  return offer.models[kind]
end
