-- Gives what a team has written an end, where it has none and no run owns it.
-- KEYS: state upload
-- ARGV: ttl_s
-- RETURNS: 1 it expires from now on, 0 it did already, or is a run's.
if redis.call('EXISTS', KEY.state) == 1 or redis.call('TTL', KEY.upload) ~= -1 then return 0 end
return redis.call('EXPIRE', KEY.upload, ARG.ttl_s)
