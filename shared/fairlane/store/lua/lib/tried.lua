-- What a job has spent: "dispatches:attempts:rate limits", kept from its first dispatch to its end.
-- GIVES: tried note

function tried(jobs, job)
  local record = redis.call('HGET', jobs, job) or '0:0:0'
  local number, attempts, limited = string.match(record, '^(%d+):(%d+):(%d+)')
  return tonumber(number), tonumber(attempts), tonumber(limited)
end

function note(jobs, job, number, attempts, limited)
  redis.call('HSET', jobs, job, table.concat({ whole(number), whole(attempts), whole(limited) }, ':'))
end
