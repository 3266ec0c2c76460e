-- Holds a run's jobs for a model whose provider rejected the run's first calls to it in the same way. So a model that
-- does not exist, or a wrong parameter, costs a few calls and not all.
-- GIVES: HELD_BOUND refusal_fields held_by_refusals model_of next_allowed
-- USES: core/time job/entry run/first_constants

-- Fields of a run's state, by call kind and lane:
--   answered:<kind>:<lane>   1 after any other answer; then the run's jobs for the model are never held
--   rejected:<kind>:<lane>   JSON {count, refusal, words}: equal rejections, while there is no other answer
--   first:<kind>:<lane>      "started:most:until_ms": how many calls have started, until they are any number, and how
--                            many may until then, while there is no other answer (lib/run/first_calls.lua)

HELD_BOUND = 'request_refused' -- the bound that a run reports on a lane if all its jobs there are held
local LOOK_AT, LOOK_BEHIND = 100, 1000 -- most jobs that one request skips: held ones (0.1 ms), those that do not fit
local PAGE = 50 -- jobs that are read at once

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

-- The first job behind others of a queue that no refusals hold and that fits. `looked` is from where to look on.
local function first_behind(offer, queue, fits)
  offer.looked = offer.looked or {}
  local from, count = offer.looked[queue] or 1, PAGE
  while from < LOOK_BEHIND and count == PAGE do
    local texts = redis.call('LRANGE', queue, from, from + PAGE - 1)
    for _, text in ipairs(texts) do
      local entry = parse_entry(text)
      if not model_of(offer, entry.kind).held and fits(entry.kind) then
        entry.behind, offer.looked[queue] = text, from
        return entry
      end
      from = from + 1
    end
    count, offer.looked[queue] = #texts, from
  end
end

-- The first job of an offer's `queues` that no refusals hold, and whose call kind `fits` (nil: any does): its entry,
-- its queue, and whether its answer is learned from. Held jobs go to the end of their queue, and those that do not fit
-- keep their places: an entry `behind` them is that text. Where only held jobs are seen: nil, nil, nil, and when to
-- look again (0: when woken).
function next_allowed(offer, queues, now, fits)
  local again
  for _, queue in ipairs(queues) do
    local passed, text = 0, offer.emptied ~= queue and redis.call('LINDEX', queue, 0)
    if not text and queue == offer.hot then offer.emptied = queue end -- one script adds nothing to it
    while text do
      local entry = parse_entry(text)
      local model = model_of(offer, entry.kind)
      if not model.held then
        if fits and not fits(entry.kind) then entry = first_behind(offer, queue, fits) end
        if entry then return entry, queue, model_of(offer, entry.kind).learns or nil end
        break
      end
      passed, again = passed + 1, again or 0
      if passed >= redis.call('LLEN', queue) then break end
      if passed > LOOK_AT then
        again = now + 1000
        break
      end
      redis.call('RPUSH', queue, redis.call('LPOP', queue))
      text = redis.call('LINDEX', queue, 0)
    end
  end
  return nil, nil, nil, again
end
