-- Constants of 429s by chance (lib/refusal/by_chance.lua): when a check begins, and what shows chance.
-- GIVES: EARLY EARLY_KNOWN MOST_EARLY IN_TIME LEAST_PACE_MS LEAST_CHANCE MOST_CHANCE LEAST_BEYOND MOST_BEYOND
--       CHANCE_CALLS CHECKED_AT LEAST_CHECKED USED FIRST_CHECKED CHECKED_CALLS CHANCE_CERTAIN LEAST_KEPT MOST_KEPT
--       DOUBT_KEPT UNDER_CHANCE OVER_LIMIT CHANCE NO_CHANCE RUN_BY_CHANCE

EARLY = 6 -- early 429s that begin a check: a limit that fell is found with fewer
EARLY_KNOWN = 0.34 -- share of these that is enough if calls are answered in named waits: with half, slow lanes stall
MOST_EARLY = 96 -- the most that are required: twice as many after each check that shows no chance
IN_TIME = 2 -- early 429s that a 429 outweighs which was not early
LEAST_PACE_MS = 1000 -- ms over which a pace is measured at least: a bucket's savings are admitted at once
LEAST_CHANCE = 0.003 -- share of calls rejected by chance below which each 429 shows a limit
MOST_CHANCE = 0.6 -- the highest share that is taken for chance
LEAST_BEYOND = 0.02 -- least share of calls that a limit must reject on top of chance
MOST_BEYOND = 0.9 -- the highest share of calls that is assumed to be rejected above a limit
CHANCE_CALLS = 250 -- calls over which the share is averaged
CHECKED_AT = 0.85 -- share of the pace at which a check runs: a limit of that pace rejects next to nothing there
LEAST_CHECKED = 0.1 -- share of the lane's rate below which that pace is not taken to be
USED = 0.25 -- share of the rate below which a pace does not show how fast calls are admitted
FIRST_CHECKED = 12 -- least calls of a first check
CHECKED_CALLS = 40 -- calls of each later check
CHANCE_CERTAIN = 7 -- logarithm of the odds from which more 429s than by chance are believed: 1,100 to 1
LEAST_KEPT = 0.3 -- least share of the rate that is kept after a check that shows a limit
MOST_KEPT = 0.95 -- the same: the most
DOUBT_KEPT = 0.05 -- relative standard deviation of the estimate after a check
UNDER_CHANCE = 0.6 -- share of the 429s before a check that chance sends in it: those were many by selection
OVER_LIMIT = 0.1 -- the same for a limit
CHANCE = 4 -- logarithm of the odds from which chance is believed: 55 to 1
NO_CHANCE = 2.5 -- the same for a limit: 12 to 1
RUN_BY_CHANCE = 0.001 -- how probable 429s in a row must be to count as chance
