-- Tries keys before a script changes anything: if somebody has given one another type, Redis refuses a command on it,
-- and keeps what the script has written before.
-- GIVES: try_keys

local READS = { list = 'LLEN', set = 'SCARD', string = 'STRLEN', zset = 'ZCARD' }

-- `kinds` is {<type>: [key, …]}. Tries each key once, also for calls that share a script. Raises Redis' error.
function try_keys(kinds)
  local tried = CALL.tried or {}
  CALL.tried = tried
  for kind, keys in pairs(kinds) do
    for _, key in ipairs(keys) do
      if not tried[key] then
        if kind == 'hash' then
          redis.call('HEXISTS', key, '')
        elseif kind == 'stream' then
          redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)
        else
          redis.call(READS[kind], key)
        end
        tried[key] = true
      end
    end
  end
end
