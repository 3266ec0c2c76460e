-- Notes a run's answers and rejections: they decide whether its jobs for a model are held (lib/run/held_models.lua),
-- and how many of its first calls start (lib/run/first_calls.lua). In the lane's hash:
--   rejects_ms   how long its rejections of a run's first calls take
-- GIVES: note_answer note_undecided
-- USES: core/time core/wake run/first_constants run/first_state run/model_refusals
-- NEEDS: KEY.dirty KEY.lane KEY.state ARG.channel

-- Holds further first calls for as long as this rejection took: those that started with it end by then. With `back`
-- another call may take this one's place.
local function hold_first(lease, first, back, now)
  local took_ms = math.min(FIRST_HOLD_MOST_MS, now - lease.granted_ms)
  local usual_ms = tonumber(redis.call('HGET', KEY.lane, 'rejects_ms') or '') or took_ms
  redis.call('HSET', KEY.lane, 'rejects_ms', whole((usual_ms + took_ms) / 2))
  if not first or now >= first.until_ms + FIRST_DOUBLINGS * FIRST_DOUBLED_MS then return end
  local hold_ms = math.max(FIRST_HOLD_MS, math.min(FIRST_HOLD_MOST_MS, FIRST_HOLD_OF * took_ms))
  first.most = math.max(first.most, first.started)
  first.until_ms = math.max(first.until_ms, now + hold_ms)
  if back then first.started = math.max(0, first.started - 1) end
end

-- Notes that a lease's call has ended, if it was a witness.
local function end_witness(first, lease)
  for i = lease.witness and #first.witnesses or 0, 1, -1 do
    if first.witnesses[i] == lease.job then table.remove(first.witnesses, i) end
  end
end

-- Notes how a call ended. `refusal`: what the provider rejected in the request itself; '' if nothing. Equal refusals
-- hold the model; while a witness is awaited, any other answer releases it.
function note_answer(lease, signal, refusal, words, now)
  local answers = signal == 'ok' or signal == 'answered'
  if not lease.learns or not answers and not lease.witness then return end
  local answered, rejected, field = refusal_fields(lease.kind, lease.lane)
  local values = redis.call('HMGET', KEY.state, answered, rejected)
  if values[1] then return end
  local past, first = values[2] and cjson.decode(values[2]), read_first(KEY.state, field)
  local held, awaited = past and past.count >= ENOUGH_REFUSALS, #(first and first.witnesses or {}) > 0
  local alike = refusal ~= '' and (not past or past.refusal == refusal)
  if first then end_witness(first, lease) end
  if answers and not alike and (refusal == '' or not held or awaited) then
    redis.call('HSET', KEY.state, answered, 1)
    redis.call('HDEL', KEY.state, rejected, field)
    first = nil
  elseif answers and alike then
    local count = past and past.count + 1 or 1
    redis.call('HSET', KEY.state, rejected, cjson.encode({ count = count, refusal = refusal, words = words }))
    hold_first(lease, first, false, now)
  end
  if first then write_first(KEY.state, field, first) end
  if held and (awaited or not first) then wake(KEY.dirty, ARG.channel, lease.lane) end
end

-- Notes a rejection that does not count: the job's next call is a changed one, which takes its place and decides.
function note_undecided(lease, signal, now)
  if signal ~= 'answered' then return note_answer(lease, 'none', '', '', now) end
  local answered, _, field = refusal_fields(lease.kind, lease.lane)
  if not lease.learns or redis.call('HGET', KEY.state, answered) then return end
  local first = read_first(KEY.state, field)
  hold_first(lease, first, true, now)
  if first then write_first(KEY.state, field, first) end
end
