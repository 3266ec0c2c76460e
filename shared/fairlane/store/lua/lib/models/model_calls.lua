-- Calls in flight by model, on a lane whose server holds few models at once (models/models). In a lane's hash:
--   calls:<model>    calls of it in flight
-- GIVES: model_calls begin_model_call end_model_call

-- The model's calls in flight. 0 if the lane has none at all: then the count is of lost calls.
function model_calls(row, name)
  return (row.inflight or 0) > 0 and row['calls:' .. name] or 0
end

-- Counts a call of the model that starts, the lane's latest.
function begin_model_call(row, name)
  if not name then return end
  local others = row.inflight > 1 and row['calls:' .. name] or 0
  row['calls:' .. name] = others + 1
end

-- Counts a call that has ended, on the lane of this key.
function end_model_call(lane, lease)
  if not lease.model then return end
  local field = 'calls:' .. lease.model
  if redis.call('HINCRBY', lane, field, -1) <= 0 then redis.call('HDEL', lane, field) end
end
