-- Reads a run's queue on a lane: its length, the charges of its next jobs, and the position of one job.
-- KEYS: lane limits state hot fresh
-- ARGV: job looked
-- USES: job/entry lane/state tokens/reserve
-- RETURNS: JSON {queued, sampled, input, output, position}: the jobs queued, how many of the first were weighed,
--          their charges in tokens, and the position of `job` (1 is next; 0: neither among the first `looked` hot
--          jobs nor among the fresh ones, or `job` is -1).
local lane, limits, wanted, looked = read_hash(KEY.lane), read_hash(KEY.limits), tonumber(ARG.job), tonumber(ARG.looked)
local MOST_LOOKED = 5000 -- jobs that are searched at most: a team may run this verb, and must not block Redis
if looked > MOST_LOOKED then return redis.error_reply('ERR queue_view looks at most at ' .. MOST_LOOKED .. ' jobs') end
local hot, fresh = redis.call('LLEN', KEY.hot), redis.call('LLEN', KEY.fresh)
local SAMPLED = 100 -- jobs whose charges are summed: enough for a mean
local count, input, output, place = 0, 0, 0, 0

local function weigh(texts)
  for _, text in ipairs(texts) do
    if count == SAMPLED then return end
    local reserved = reserve(lane, limits, parse_entry(text), KEY.state)
    count, input, output = count + 1, input + reserved.input, output + reserved.output
  end
end

weigh(redis.call('LRANGE', KEY.hot, 0, SAMPLED - 1))
weigh(redis.call('LRANGE', KEY.fresh, 0, SAMPLED - 1))
if wanted >= 0 then
  for i, text in ipairs(redis.call('LRANGE', KEY.hot, 0, looked - 1)) do
    if parse_entry(text).job == wanted then place = i break end
  end
  -- Fresh jobs lie in the order of their numbers.
  local low, high = 0, fresh - 1
  while place == 0 and low <= high do
    local middle = math.floor((low + high) / 2)
    local job = parse_entry(redis.call('LINDEX', KEY.fresh, middle)).job
    if job == wanted then place = hot + middle + 1 end
    if job < wanted then low = middle + 1 else high = middle - 1 end
  end
end
return cjson.encode({ queued = hot + fresh, sampled = count, input = input, output = output, position = place })
