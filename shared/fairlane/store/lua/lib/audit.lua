-- The audit log: who has changed what, told in the step that changes it. It comes after the change, which Redis may refuse.
-- GIVES: audit

-- ARG.audit is what `fairlane.store.audit` writes; `more` joins its detail. Redis dates the entry by its own clock.
function audit(more)
  local told = cjson.decode(ARG.audit)
  for name, value in pairs(more or {}) do told.detail[name] = value end
  local detail = next(told.detail) and cjson.encode(told.detail) or '{}'
  redis.call('XADD', KEY.audit, 'MAXLEN', '~', whole(told.keep), '*',
    'role', told.role, 'who', told.who, 'act', told.act, 'team', told.team, 'what', told.what, 'detail', detail)
end
