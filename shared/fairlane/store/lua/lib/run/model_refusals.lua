-- What a run's state knows of its first calls to a model, by which the run's jobs for it may be held. So a model that
-- does not exist, or a wrong parameter, costs a few calls and not all.
-- GIVES: refusal_fields
-- USES: core/time

-- Fields of a run's state, by call kind and lane:
--   answered:<kind>:<lane>   1 after any other answer; then the run's jobs for the model are never held
--   rejected:<kind>:<lane>   JSON {count, refusal, words}: equal rejections, while there is no other answer
--   first:<kind>:<lane>      "started:most:until_ms:chosen:job:job": how many calls have started, until they are any
--                            number, how many may until then, how many of them were chosen as witnesses, and whose
--                            answers are awaited, while there is no other answer (lib/run/first_state.lua)

-- The names of the three fields.
function refusal_fields(kind, lane)
  local model = whole(kind) .. ':' .. lane
  return 'answered:' .. model, 'rejected:' .. model, 'first:' .. model
end
