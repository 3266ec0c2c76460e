-- Bounds the keys of a verb that a team may run, so that it cannot keep the server busy.
-- GIVES: refuse_keys

-- An error if there are more than `most` keys, or one comes twice; else nil.
function refuse_keys(keys, most)
  if #keys > most then return redis.error_reply('ERR at most ' .. most .. ' keys at once') end
  local seen = {}
  for _, key in ipairs(keys) do
    if seen[key] then return redis.error_reply('ERR each key once') end
    seen[key] = true
  end
end
