-- How many calls a provider serves at once where the others queue: latency grows with the calls in flight, while no
-- more of them come back a second. A call is compared with those of its run and kind, since models and prompts differ in how fast they
-- are answered, whatever the lane: a run keeps 'pace:<kind>', how many there were and their latency a token. A lane keeps
-- `lat_base`, how much slower than that its calls usually are, sums since `lat_from_ms`, and `token_ms`, its latest pace.
-- GIVES: watch_latency

local SAMPLES, MANY_SAMPLES = 16, 64
local KNEE, SHARP_KNEE, ROOM, EASED, LEAST_QUEUE = 2, 4, 1.25, 0.8, 4
local BASE_FALLS, BASE_RISES = 0.5, 0.02
local DRIFT = 8192 -- calls over which a kind's pace drifts, once it is known: queueing is told long before
local REFUSED_MS = 600000 -- a lane that was refused so lately is judged by its refusals alone

-- How much slower a call was than its kind, a token of output, since long answers take long.
local function slowness(row, lease, used, now)
  local token_ms = math.max(1, now - (lease.claimed_ms or lease.granted_ms)) / (FIRST_TOKEN + math.max(0, used and used.output or 0))
  row.token_ms = (row.token_ms or token_ms) + (token_ms - (row.token_ms or token_ms)) / SAMPLES
  local field = 'pace:' .. lease.kind
  local count, usual = string.match(redis.call('HGET', KEY.state, field) or '', '^(%d+) (%S+)$')
  count, usual = tonumber(count or 0) + 1, tonumber(usual or token_ms)
  local pace = usual + (token_ms - usual) / (count <= SAMPLES and count or DRIFT)
  redis.call('HSET', KEY.state, field, string.format('%d %.6g', math.min(count, DRIFT), pace))
  return token_ms / usual
end

-- Watches how much slower successes are than usual, from their claims on; what was under way when Redis was away tells nothing. Where it has doubled, the window becomes what keeps the provider busy by
-- Little's law and some more; where that does not bring it down, it was not our calls that slowed it.
function watch_latency(row, lease, used, now)
  if lease.granted_ms < math.max(row.knee_ms or 0, row.ramp_ms or 0) or now < (row.last_ms or -REFUSED_MS) + REFUSED_MS then return end
  local count, sum = (row.lat_n or 0) + 1, (row.lat_sum or 0) + slowness(row, lease, used, now)
  local places = (row.lat_places or 0) + lease.inflight
  local mean, base, from_ms = sum / count, row.lat_base or 1, row.lat_from_ms or now
  local slow = mean > (count < MANY_SAMPLES and SHARP_KNEE or KNEE) * base
  local early = row.lat_base and row.knee ~= 1 and not slow and count < MANY_SAMPLES
  if early or count < SAMPLES or from_ms > lease.granted_ms then
    row.lat_n, row.lat_sum, row.lat_places, row.lat_from_ms = count, sum, places, from_ms
    return
  end
  if row.knee == 1 and mean > EASED * row.knee_mean then
    base, row.knee, row.window = mean, 0, ''
  elseif slow and places / count > LEAST_QUEUE and row.stop ~= '' then
    row.knee, row.knee_ms, row.knee_mean = 1, now, mean
    narrow(row, math.ceil(places / count * base / mean * ROOM), 'latency')
  else
    row.knee = 0
  end
  row.lat_n, row.lat_sum, row.lat_places, row.lat_from_ms = 0, 0, 0, now
  row.lat_base = base + (mean < base and BASE_FALLS or BASE_RISES) * (mean - base)
end
