-- Which jobs of an offer (lane/offer) may start with the models that its lane's server holds (models/models). A run's
-- state has 'model:<kind>', the model of each call kind.
-- GIVES: fitting model_named choose first_of
-- USES: models/models

-- The model of a call kind; nil if unknown, as in a run that an earlier version admitted.
function model_named(offer, kind)
  offer.named = offer.named or {}
  if offer.named[kind] == nil then offer.named[kind] = redis.call('HGET', offer.state, 'model:' .. kind) end
  return offer.named[kind] or nil
end

-- The sooner of two times of which 0 is: when woken.
function first_of(one, other)
  return one > 0 and other > 0 and math.min(one, other) or math.max(one, other)
end

-- Returns a function that tells whether jobs of a call kind may start now; nil if all may. Sets the offer's
-- `model_until`: until when the others wait for their models (0: until woken). Each call that ends may let them start.
function fitting(offer, admission)
  if admission.models == nil then
    admission.models = models_of(admission.row, admission.limits, admission.now)
  end
  if not admission.models then return nil end
  return function(kind)
    local name = model_named(offer, kind)
    local until_ms = name and awaits_model(admission.models, name)
    if not until_ms then return true end
    offer.model_until, admission.row.teams_wait = first_of(offer.model_until or 0, until_ms), 1
    return false
  end
end

-- Holds the model of a job that may start. Returns the job.
function choose(offer, job, admission)
  if job.model and not hold_model(admission.models, job.model) then offer.looked = nil end
  return job
end
