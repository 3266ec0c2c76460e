-- A run's queue on a lane: its length, what its next jobs will be charged, and where one job stands. Changes nothing.
-- KEYS: lane limits state hot fresh headroom_tokens headroom_input headroom_output
-- ARGV: job looked
-- USES: time bucket rate lane entry tokens
-- RETURNS: {queued, jobs looked at, input and output that is charged for them, place}; place 1 is next, 0: not found
--          among the first `looked` of the hot ones, nor among the fresh.
local lane, limits, wanted, looked = read(KEY.lane), read(KEY.limits), tonumber(ARG.job), tonumber(ARG.looked)
local hot, fresh = redis.call('LLEN', KEY.hot), redis.call('LLEN', KEY.fresh)
local count, input, output, place, sampled = 0, 0, 0, 0, 100

local function weigh(texts)
  for _, text in ipairs(texts) do
    if count == sampled then return end
    local reserved = reserve(lane, limits, read_entry(text), KEY.state)
    count, input, output = count + 1, input + reserved.input, output + reserved.output
  end
end

weigh(redis.call('LRANGE', KEY.hot, 0, sampled - 1))
weigh(redis.call('LRANGE', KEY.fresh, 0, sampled - 1))
if wanted >= 0 then
  for i, text in ipairs(redis.call('LRANGE', KEY.hot, 0, looked - 1)) do
    if read_entry(text).job == wanted then place = i break end
  end
  -- Fresh jobs lie in the order of their numbers.
  local low, high = 0, fresh - 1
  while place == 0 and low <= high do
    local middle = math.floor((low + high) / 2)
    local job = read_entry(redis.call('LINDEX', KEY.fresh, middle)).job
    if job == wanted then place = hot + middle + 1 end
    if job < wanted then low = middle + 1 else high = middle - 1 end
  end
end
return { hot + fresh, count, whole(input), whole(output), place }
