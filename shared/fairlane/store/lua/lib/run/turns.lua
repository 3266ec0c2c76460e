-- Turns of conversations that go side by side: a run feeds their items in any order, each once, and only after the item
-- before it in its conversation has ended.
-- GIVES: take_turns
-- NEEDS: KEY.done KEY.fed

local function has_ended(item, steps)
  for job = item * steps, (item + 1) * steps - 1 do
    if redis.call('GETBIT', KEY.done, job) == 0 then return false end
  end
  return true
end

-- Marks items as fed. `turns` is [[item, the one before it in its conversation, or -1 where that has long ended], …].
-- Returns false, and changes nothing, where it is not the turn of one of them.
function take_turns(turns, steps)
  for _, turn in ipairs(turns) do
    local item, before = unpack(turn)
    if redis.call('GETBIT', KEY.fed, item) == 1 then return false end
    if before >= 0 and not has_ended(before, steps) then return false end
  end
  for _, turn in ipairs(turns) do redis.call('SETBIT', KEY.fed, turn[1], 1) end
  return true
end
