-- Prices of a run's calls by call kind, as its state keeps them: 'price:<kind>' is "<input> <output>".
-- GIVES: price_of

-- Millionths of a dollar for a token of input and of output; 0 and 0 if no price is configured.
function price_of(state, kind)
  local price = redis.call('HGET', state, 'price:' .. kind) or '0 0'
  local input, output = string.match(price, '^(%S+) (%S+)$')
  return tonumber(input), tonumber(output)
end
