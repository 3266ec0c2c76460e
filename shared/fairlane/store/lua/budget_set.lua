-- Changes what a team may use in a day or a month; what it has used stays.
-- KEYS: budgets budget dirty audit
-- ARGV: channel team limits stated keep_ms audit
-- USES: time wake audit
-- RETURNS: how many limits there are now.
-- `limits` is {"<per> <unit> <lane>": number as a text, or false to take it away}; `stated` is what the configuration says of
-- the team, '' where it does not speak. Without a limit the hash lasts for `keep_ms`, so that one set again goes on.
for name, most in pairs(cjson.decode(ARG.limits)) do
  redis.call('HDEL', KEY.budget, 'held ' .. name, 'told ' .. name)
  if most then
    redis.call('HSET', KEY.budget, 'limit ' .. name, most)
  else
    redis.call('HDEL', KEY.budget, 'limit ' .. name)
  end
end
if ARG.stated ~= '' then redis.call('HSET', KEY.budget, 'stated', ARG.stated) end
local lanes = redis.call('HGET', KEY.budget, 'held_lanes')
if lanes then
  redis.call('HDEL', KEY.budget, 'held_lanes')
  for lane in string.gmatch(lanes, '[^\n]+') do wake(KEY.dirty, ARG.channel, lane) end
end
local count = 0
for _, field in ipairs(redis.call('HKEYS', KEY.budget)) do
  if string.find(field, '^limit ') then count = count + 1 end
end
if count > 0 then
  redis.call('SADD', KEY.budgets, ARG.team)
  redis.call('PERSIST', KEY.budget)
else
  redis.call('SREM', KEY.budgets, ARG.team)
  redis.call('PEXPIRE', KEY.budget, ARG.keep_ms)
end
if ARG.limits ~= '{}' then audit() end
return count
