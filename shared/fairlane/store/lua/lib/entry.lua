-- A queued job as text: "job:input:output:kind", its number, the tokens expected of it, and what its run calls for.
-- GIVES: read_entry entry_of

function read_entry(text)
  local job, input, output, kind = string.match(text, '^(%d+):(%d+):(%d+):(%d+)')
  return { job = tonumber(job), input = tonumber(input), output = tonumber(output), kind = tonumber(kind) }
end

-- The entry that a lease was made from.
function entry_of(lease)
  return table.concat({ whole(lease.job), whole(lease.input), whole(lease.output), whole(lease.kind) }, ':')
end
