-- Amounts of tokens by axis.
-- GIVES: amount_on

-- An amount of {input, output} on one token axis.
function amount_on(axis, tokens)
  if axis == 'tokens' then return tokens.input + tokens.output end
  return tokens[axis]
end
