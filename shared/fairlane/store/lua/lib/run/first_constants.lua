-- Constants of a run's first calls to a model (lib/run/first_calls.lua). Each line has its unit, then its reason.
-- GIVES: ENOUGH_REFUSALS WITNESSES FIRST_HOLD_MS FIRST_HOLD_MOST_MS FIRST_HOLD_OF FIRST_DOUBLED_MS FIRST_DOUBLINGS

ENOUGH_REFUSALS = 5 -- equal rejections that hold the jobs: one or two may be due to their rows
WITNESSES = 2 -- of them, from the middle and the end of the queue: rows together at its head may all be wrong
FIRST_HOLD_MS = 250 -- ms in which at most the first calls start: providers reject a wrong request in 100 to 300 ms
FIRST_HOLD_MOST_MS = 1000 -- ms: the most of that, however slow the lane's rejections are: each good run waits for it
FIRST_HOLD_OF = 1.25 -- factor on the time of a lane's rejections: calls that start together do not end together
FIRST_DOUBLED_MS = 40 -- ms in which that number doubles from then on: 500 calls a second lose half a second in all
FIRST_DOUBLINGS = 12 -- doublings after which any number starts: more than 20,000 calls
