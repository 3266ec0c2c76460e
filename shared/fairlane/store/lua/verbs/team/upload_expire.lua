-- Sets an expiry on a key that a team has written, if it has none and no run owns it.
-- KEYS: state upload
-- ARGV: ttl_s
-- RETURNS: 1 set, 0 the key expires already, or a run owns it.
if redis.call('EXISTS', KEY.state) == 1 or redis.call('TTL', KEY.upload) ~= -1 then return 0 end
return redis.call('EXPIRE', KEY.upload, ARG.ttl_s)
