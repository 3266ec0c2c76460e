-- Amounts of tokens by axis.
-- GIVES: amount_on unknown_in_flight
-- USES: tokens/length_constants

-- An amount of {input, output} on one token axis.
function amount_on(axis, tokens)
  if axis == 'tokens' then return tokens.input + tokens.output end
  return tokens[axis]
end

-- By how many tokens the calls in flight may exceed what they were charged, at the risk RISK.
function unknown_in_flight(row, axis)
  local var = axis == 'output' and 0 or (row.prompt_miss or 0)
  if axis ~= 'input' then var = var + (row.answer_miss or 0) end
  return RISK_Z * math.sqrt(math.max(1, row.inflight or 0) * var)
end
