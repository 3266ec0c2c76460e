-- Lanes that wait for a worker's slot, or for a permit of the deployment's total.
-- GIVES: wake_starved
-- USES: core/wake
-- NEEDS: KEY.dirty KEY.starved ARG.channel

-- Wakes all these lanes, once a script: only a request for permits adds one.
function wake_starved()
  if CALL.starved_woken then return end
  CALL.starved_woken = true
  local names = redis.call('SMEMBERS', KEY.starved)
  if #names == 0 then return end
  for _, name in ipairs(names) do wake(KEY.dirty, ARG.channel, name) end
  redis.call('DEL', KEY.starved)
end
