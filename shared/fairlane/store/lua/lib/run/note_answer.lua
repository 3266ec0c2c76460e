-- Notes a run's answers and rejections: they decide whether its jobs for a model are held (lib/run/model_refusals.lua),
-- and how many of its first calls start (lib/run/first_calls.lua). In the lane's hash:
--   rejects_ms   how long its rejections of a run's first calls take
-- GIVES: note_answer
-- USES: core/time core/wake run/first_constants run/model_refusals
-- NEEDS: KEY.dirty KEY.lane KEY.state ARG.channel

-- Starts no more first calls for as long as this rejection took: the others that started with it end by then.
local function hold_first(lease, field, now)
  local first, took_ms = redis.call('HGET', KEY.state, field), math.min(FIRST_HOLD_MOST_MS, now - lease.granted_ms)
  local usual_ms = tonumber(redis.call('HGET', KEY.lane, 'rejects_ms') or '') or took_ms
  redis.call('HSET', KEY.lane, 'rejects_ms', whole((usual_ms + took_ms) / 2))
  local started, most, until_ms = string.match(first or '', '(%d+):(%d+):(%d+)')
  if not started or now >= until_ms + FIRST_DOUBLINGS * FIRST_DOUBLED_MS then return end
  local hold_ms = math.max(FIRST_HOLD_MS, math.min(FIRST_HOLD_MOST_MS, FIRST_HOLD_OF * took_ms))
  local bound = { started, whole(math.max(most, started)), whole(math.max(until_ms, now + hold_ms)) }
  redis.call('HSET', KEY.state, field, table.concat(bound, ':'))
end

-- `refusal` names what the provider rejected in the request itself; '' if nothing.
function note_answer(lease, signal, refusal, words, now)
  if not lease.learns or signal ~= 'ok' and signal ~= 'answered' then return end
  local answered, rejected, first = refusal_fields(lease.kind, lease.lane)
  local values = redis.call('HMGET', KEY.state, answered, rejected)
  if values[1] then return end
  local past = values[2] and cjson.decode(values[2])
  local held = past and past.count >= ENOUGH_REFUSALS
  if refusal ~= '' and (not past or past.refusal == refusal) then
    local count = past and past.count + 1 or 1
    redis.call('HSET', KEY.state, rejected, cjson.encode({ count = count, refusal = refusal, words = words }))
    hold_first(lease, first, now)
  elseif refusal == '' or not held then
    redis.call('HSET', KEY.state, answered, 1)
    redis.call('HDEL', KEY.state, rejected, first)
    if held then wake(KEY.dirty, ARG.channel, lease.lane) end
  end
end
