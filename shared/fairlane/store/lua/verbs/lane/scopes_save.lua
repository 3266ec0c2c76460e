-- Saves each connection's scope and credential; resumes lanes that an earlier credential has parked.
-- KEYS: leader clock scopes dirty audit lanes*
-- ARGV: now_ms epoch channel records names audit known
-- USES: circuit/unpark core/audit core/leader core/time core/wake
-- RETURNS: the names of the lanes that were resumed, each with a probe; nil when not the leader.
-- `records` is {connection: its record as a text, or false if the connection is gone}; KEY.lanes has the states of the
-- lanes `names`. `audit` is '' if no credential has changed; with `known` '1' it is written only if a lane was resumed.
local now, opened = clock(ARG.now_ms, KEY.clock), {}
if not is_leader(KEY.leader, ARG.epoch, now) then return false end
try_audited({ hash = { KEY.scopes, unpack(KEY.lanes) }, set = { KEY.dirty } })
for connection, record in pairs(cjson.decode(ARG.records)) do
  if record then
    redis.call('HSET', KEY.scopes, connection, record)
  else
    redis.call('HDEL', KEY.scopes, connection)
  end
end
for i, name in ipairs(cjson.decode(ARG.names)) do
  if unpark(KEY.lanes[i], now) then
    redis.call('HSET', KEY.lanes[i], 'key_ms', whole(now))
    opened[#opened + 1] = name
    wake(KEY.dirty, ARG.channel, name)
  end
end
if ARG.audit ~= '' and (ARG.known ~= '1' or #opened > 0) then audit(#opened > 0 and {opened = opened} or nil) end
return opened
