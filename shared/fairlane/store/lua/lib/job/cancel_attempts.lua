-- Cancels the attempts of a run that ends early: their workers lose the leases, and lanes and teams are credited with
-- what the calls held. A job with answers that were not kept gets a record of their tokens.
-- GIVES: cancel_attempts
-- USES: circuit/suspect core/time core/tries core/wake job/attempt_counts lane/starved models/model_calls
--       team/budget_true_up team/in_flight
-- NEEDS: KEY.active KEY.budget KEY.dirty KEY.jobs KEY.leased KEY.leases KEY.results KEY.starved ARG.channel

-- Drops a lane's probe, if it is still awaited; another may start at once.
local function drop_probe(lane, lease, now)
  local circuit, overdue_n = unpack(redis.call('HMGET', lane, 'circuit', 'overdue_n'))
  if circuit ~= 'half-open' or lease.n <= (tonumber(overdue_n) or 0) then return end
  redis.call('HSET', lane, 'circuit', 'open', 'open_ms', whole(now), 'trial_n', '')
end

-- `lane` is the key of the lane's state, `in_flight` that of its calls in flight by team.
local function end_lease(id, lease, lane, in_flight, now)
  redis.call('ZREM', KEY.leases, id)
  redis.call('HDEL', KEY.leased, id)
  redis.call('HINCRBY', lane, 'inflight', -1)
  if lease.pending then redis.call('HINCRBY', lane, 'pending', -1) end
  decrement_in_flight(in_flight, lease)
  end_model_call(lane, lease)
  leave_suspect(lane, lease)
  if lease.probe then drop_probe(lane, lease, now) end
  true_up_budget(KEY.budget, lease, 'none', lease.worker and { input = -1, output = -1 } or nil)
  wake(KEY.dirty, ARG.channel, lease.lane)
end

-- `lanes` and `in_flight` are those keys by the lanes' names; `state` is the end state of the run's jobs.
function cancel_attempts(ref, lanes, in_flight, state, now)
  try_keys({ hash = { KEY.leased, KEY.results }, zset = { KEY.leases }, set = { KEY.active, KEY.dirty, KEY.starved } })
  for name, lane in pairs(lanes) do try_keys({ hash = { lane, in_flight[name] } }) end
  local records = redis.call('HGETALL', KEY.jobs)
  for i = 1, #records, 2 do
    local id = ref .. '/' .. records[i] .. '/' .. string.match(records[i + 1], '^%d+')
    local unkept = attempt_counts(KEY.jobs, records[i]).unkept
    if unkept[1] > 0 then redis.call('HSET', KEY.results, records[i], cjson.encode({ s = state, w = unkept })) end
    local record = redis.call('HGET', KEY.leased, id)
    if record then
      local lease = cjson.decode(record)
      end_lease(id, lease, lanes[lease.lane], in_flight[lease.lane], now)
    end
  end
  wake_starved()
end
