-- Notes a run's answers and rejections: they decide whether its jobs for a model are held (lib/run/model_refusals.lua).
-- GIVES: note_answer
-- USES: core/wake run/model_refusals
-- NEEDS: KEY.dirty KEY.state ARG.channel

-- `refusal` names what the provider rejected in the request itself; '' if nothing.
function note_answer(lease, signal, refusal, words)
  if not lease.learns or signal ~= 'ok' and signal ~= 'answered' then return end
  local answered, rejected = refusal_fields(lease.kind, lease.lane)
  local values = redis.call('HMGET', KEY.state, answered, rejected)
  if values[1] then return end
  local past = values[2] and cjson.decode(values[2])
  local held = past and past.count >= ENOUGH_REFUSALS
  if refusal ~= '' and (not past or past.refusal == refusal) then
    local count = past and past.count + 1 or 1
    redis.call('HSET', KEY.state, rejected, cjson.encode({ count = count, refusal = refusal, words = words }))
  elseif refusal == '' or not held then
    redis.call('HSET', KEY.state, answered, 1)
    redis.call('HDEL', KEY.state, rejected)
    if held then wake(KEY.dirty, ARG.channel, lease.lane) end
  end
end
