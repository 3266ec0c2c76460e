-- Finds the next job of an offer that may start: it is not held (lib/run/held_models.lua), and its model fits. A
-- witness (lib/run/first_calls.lua) comes from the middle or the end of the queue, and so does a probe after calls that
-- were rejected alike (`far` of the offer).
-- GIVES: next_allowed
-- USES: job/entry run/first_calls run/held_models

local LOOK_AT, LOOK_BEHIND = 100, 1000 -- most jobs that one request skips: held ones (0.1 ms), those that do not fit
local PAGE = 50 -- jobs that are read at once

-- The first job behind the head of a queue that is not held and that fits. `looked`: where the last search stopped.
local function first_behind(offer, queue, fits)
  offer.looked = offer.looked or {}
  local from, count = offer.looked[queue] or 1, PAGE
  while from < LOOK_BEHIND and count == PAGE do
    local texts = redis.call('LRANGE', queue, from, from + PAGE - 1)
    for _, text in ipairs(texts) do
      local entry = parse_entry(text)
      if may_be_called(offer, entry) and fits(entry.kind) then
        entry.behind, offer.looked[queue] = text, from
        return entry
      end
      from = from + 1
    end
    count, offer.looked[queue] = #texts, from
  end
end

-- A job of a call kind from the middle or the end of a queue; nil if none is near.
local function job_further_back(queue, kind, place)
  local length = redis.call('LLEN', queue)
  local from = place == 'last' and math.max(1, length - PAGE) or math.floor(length / 2)
  local texts = from > 0 and redis.call('LRANGE', queue, from, from + PAGE - 1) or {}
  for i = 1, #texts do
    local text = place == 'last' and texts[#texts + 1 - i] or texts[i]
    local entry = parse_entry(text)
    entry.behind, entry.witness = text, true
    if entry.kind == kind then return entry end
  end
end

-- The first job of an offer's `queues` that is not held and whose call kind `fits` (nil: any does). Returns its entry,
-- its queue, and whether its answer `learns`. Held jobs move to the end of their queue. Jobs that do not fit keep their
-- places: an entry from behind them has its text in `behind`. If only held jobs are seen: nil, nil, nil, and when to
-- look again (0: when woken).
function next_allowed(offer, queues, now, fits)
  local again
  for _, queue in ipairs(queues) do
    local passed, text = 0, offer.emptied ~= queue and redis.call('LINDEX', queue, 0)
    if not text and queue == offer.hot then offer.emptied = queue end -- it stays empty while this script runs
    while text do
      local entry = parse_entry(text)
      if may_be_called(offer, entry) then
        if fits and not fits(entry.kind) then entry = first_behind(offer, queue, fits) end
        local place = entry and (offer.far or wants_witness(offer, entry.kind, now))
        if place then entry = job_further_back(queue, entry.kind, place) or entry end
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
