-- The audit log: who has changed what. The script that makes a change tries the log first and writes its entry last, as
-- Redis may refuse the change.
-- GIVES: audit try_audited
-- USES: core/time core/tries
-- NEEDS: KEY.audit ARG.audit

-- ARG.audit is an entry of `fairlane.store.write.audit`; `more` joins its detail. Redis dates the entry by its own
-- clock.
function audit(more)
  local entry = cjson.decode(ARG.audit)
  for name, value in pairs(more or {}) do entry.detail[name] = value end
  local detail = next(entry.detail) and cjson.encode(entry.detail) or '{}'
  redis.call('XADD', KEY.audit, 'MAXLEN', '~', whole(entry.keep), '*',
    'role', entry.role, 'who', entry.who, 'act', entry.act, 'team', entry.team, 'what', entry.what, 'detail', detail)
end

-- Tries these keys (core/tries) and the log, before a verb's first write.
function try_audited(kinds)
  kinds.stream = { KEY.audit }
  try_keys(kinds)
end
