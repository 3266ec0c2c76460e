-- How many of a run's first calls to a model have started, as a field of the run's state (lib/run/model_refusals.lua).
-- GIVES: read_first write_first
-- USES: core/time

-- {started, most, until_ms, chosen, witnesses}; nil if no call has started, or the model has answered.
function read_first(state, field)
  local text = redis.call('HGET', state, field)
  if not text then return nil end
  local numbers = {}
  for number in string.gmatch(text, '%d+') do numbers[#numbers + 1] = tonumber(number) end
  local started, most, until_ms, chosen = unpack(numbers)
  return {
    started = started, most = most, until_ms = until_ms, chosen = chosen or 0, witnesses = { unpack(numbers, 5) },
  }
end

function write_first(state, field, first)
  local numbers = { first.started, first.most, first.until_ms, first.chosen, unpack(first.witnesses) }
  for i, number in ipairs(numbers) do numbers[i] = whole(number) end
  redis.call('HSET', state, field, table.concat(numbers, ':'))
end
