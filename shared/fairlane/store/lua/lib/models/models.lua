-- The models that a lane's server holds in memory at once, if it holds few (`models_at_once`). Each change loads a
-- model. So calls of another model wait until no call of a held one is in flight or about to start, or for
-- `model_seconds`; then the model that was held longest starts no more calls. In a lane's hash:
--   models           JSON [{name, idle_ms}, …]: held models, the longest held first, and since when none of its calls
--                    is in flight, or waits only for the lane
--   model_waits_ms   since when a job waits for another model
-- GIVES: models_of awaits_model hold_model
-- USES: lane/state models/model_calls

local LINGER_MS = 500 -- ms for which a model stays without a call, until its next row, turn or evaluation is fed
local TURN_MS = 60000 -- ms that other models wait without `model_seconds`: loads take some seconds to a minute

-- The models of a lane, {held, most, turn_ms, row, now}; false if the lane has no bound. If the lane itself stopped a
-- job at the last request, held models count as in use until now.
function models_of(row, limits, now)
  if not limits.models_at_once then return false end
  local held = known(row.models) and cjson.decode(row.models) or {}
  local wanted = known(row.stop) and row.stop ~= 'reserved'
  while #held > limits.models_at_once do table.remove(held, 1) end
  for _, model in ipairs(held) do
    local idle_ms = not wanted and model.idle_ms or now
    model.idle_ms = model_calls(row, model.name) == 0 and idle_ms or nil
  end
  row.models = cjson.encode(held)
  local turn_ms = limits.model_seconds and 1000 * limits.model_seconds or TURN_MS
  return { held = held, most = limits.models_at_once, turn_ms = turn_ms, row = row, now = now }
end

local function place_of(models, name)
  for place, model in ipairs(models.held) do
    if model.name == name then return place end
  end
end

-- Whether the turn of the longest held model is over, as others have waited for `turn_ms`.
local function turn_is_over(models)
  local since_ms = known(models.row.model_waits_ms)
  return since_ms and models.now >= since_ms + models.turn_ms
end

-- Until when the model at a place keeps it (0: until woken); nil if another may take it.
local function kept_until(models, place, over)
  local idle_ms = models.held[place].idle_ms
  if not idle_ms then return 0 end
  if over and place == 1 or models.now >= idle_ms + LINGER_MS then return nil end
  return idle_ms + LINGER_MS
end

-- A place that another model may take; if there is none, nil and until when (0: until woken).
local function free_place(models)
  local over, since_ms = turn_is_over(models), models.row.model_waits_ms
  local until_ms = not over and known(since_ms) and since_ms + models.turn_ms or math.huge
  for place = 1, models.most do
    local ends = models.held[place] and kept_until(models, place, over)
    if not ends then return place end
    if ends > 0 then until_ms = math.min(until_ms, ends) end
  end
  return nil, until_ms < math.huge and until_ms or 0
end

-- Until when a job of the model waits for others (0: until woken); nil if it may start. A model whose turn is over may
-- start calls while no other has taken its place.
function awaits_model(models, name)
  local row, place = models.row, place_of(models, name)
  if place then return place == 1 and turn_is_over(models) and kept_until(models, place, false) or nil end
  if #models.held >= models.most then row.model_waits_ms = known(row.model_waits_ms) or models.now end
  local free, until_ms = free_place(models)
  return not free and until_ms or nil
end

-- Holds the model of a job that `awaits_model` lets start. Returns whether it was held before, and stays.
function hold_model(models, name)
  local place, row, held = place_of(models, name), models.row, models.held
  local stays = place and not (place == 1 and turn_is_over(models))
  if stays then
    held[place].idle_ms = nil
  else
    place = place or free_place(models)
    if held[place] then table.remove(held, place) end
    table.insert(held, { name = name })
    row.model_waits_ms = ''
  end
  row.models = cjson.encode(held)
  return stays
end
