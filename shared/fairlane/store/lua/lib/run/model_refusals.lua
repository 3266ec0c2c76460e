-- What a run's state keeps of its first calls to a model: it decides whether the run's jobs for the model are held. So
-- a model that does not exist, or a wrong parameter, costs only a few calls.
-- GIVES: refusal_fields
-- USES: core/time

-- Fields of a run's state, by call kind and lane:
--   answered:<kind>:<lane>   1 after any other answer: from then on, the run's jobs for the model are never held
--   rejected:<kind>:<lane>   JSON {count, refusal, words}: equal rejections, while there is no other answer
--   first:<kind>:<lane>      "started:most:until_ms:chosen:job:job", while there is no other answer: calls that have
--                            started, how many may start until `until_ms`, how many of them were chosen as witnesses,
--                            and the witnesses that are awaited (lib/run/first_state.lua)

-- The names of the three fields.
function refusal_fields(kind, lane)
  local model = whole(kind) .. ':' .. lane
  return 'answered:' .. model, 'rejected:' .. model, 'first:' .. model
end
