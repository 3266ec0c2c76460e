-- Fencing: only the holder of the current epoch, within its lease, may change anything.
-- GIVES: is_leader

function is_leader(key, epoch, now)
  local held = redis.call('HMGET', key, 'epoch', 'until_ms')
  return held[1] == epoch and tonumber(held[2]) > now
end
