-- Time in ms: an argument under a manual clock, the server's own time when it is empty.
-- GIVES: clock whole

function clock(now_ms)
  if now_ms ~= '' then return tonumber(now_ms) end
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

-- Whole numbers beyond 10^14 lose digits in Lua's own conversion.
function whole(n)
  return string.format('%.0f', n)
end
