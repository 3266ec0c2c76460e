-- Lanes that wait for a worker's slot, or for a permit of the deployment's total.
-- GIVES: wake_starved
-- USES: core/wake
-- NEEDS: KEY.dirty KEY.starved ARG.channel

-- Wakes every lane that waits for a worker's slot or for a permit of the deployment's total.
function wake_starved()
  for _, name in ipairs(redis.call('SMEMBERS', KEY.starved)) do wake(KEY.dirty, ARG.channel, name) end
  redis.call('DEL', KEY.starved)
end
