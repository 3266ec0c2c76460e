-- Lets a verb write although Redis is full. Verbs that end or stop work use it, as they free memory.
-- GIVES: write_though_full

-- A full Redis refuses a script's first write if it may take memory. After a write that takes none, it refuses nothing:
-- https://redis.io/docs/latest/develop/programmability/eval-intro/#eval-and-memory-limits
-- `key` is a hash. The shebang flag `allow-oom` does the same, but Redis 6.2 does not read it.
function write_though_full(key)
  redis.call('HDEL', key, '')
end
