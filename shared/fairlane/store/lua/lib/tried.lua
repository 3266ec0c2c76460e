-- What a job has spent: "dispatches:attempts:rate limits", kept from its first dispatch to its end. Behind a fourth colon,
-- where there is one, the handle of a call that the provider goes on with for the job, without colons of its own: see
-- attempt_await. What stands behind a fifth is a later version's.
-- GIVES: tried note

function tried(jobs, job)
  local record = redis.call('HGET', jobs, job) or '0:0:0'
  local number, attempts, limited, handle = string.match(record, '^(%d+):(%d+):(%d+):?([^:]*)')
  return tonumber(number), tonumber(attempts), tonumber(limited), handle ~= '' and handle or nil
end

function note(jobs, job, number, attempts, limited, handle)
  local parts = { whole(number), whole(attempts), whole(limited), handle }
  redis.call('HSET', jobs, job, table.concat(parts, ':'))
end
