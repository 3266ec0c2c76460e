-- Sets a team's budgets for days and months; its usage so far stays.
-- KEYS: budgets budget dirty audit
-- ARGV: channel team limits configured keep_ms audit
-- USES: core/audit core/wake
-- RETURNS: how many limits there are now.
-- `limits` is {"<per> <unit> <lane>": number as a text, or false to remove it}; `configured` is the team's budgets
-- in the configuration, '' if it has none. Without any limit the hash stays for `keep_ms`, so that a limit that is set
-- again continues the count.
try_audited({ set = { KEY.budgets, KEY.dirty } })
for name, most in pairs(cjson.decode(ARG.limits)) do
  redis.call('HDEL', KEY.budget, 'held ' .. name, 'logged ' .. name)
  if most then
    redis.call('HSET', KEY.budget, 'limit ' .. name, most)
  else
    redis.call('HDEL', KEY.budget, 'limit ' .. name)
  end
end
if ARG.configured ~= '' then redis.call('HSET', KEY.budget, 'configured', ARG.configured) end
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
