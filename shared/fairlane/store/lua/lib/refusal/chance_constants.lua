-- Constants of 429s by chance (lib/refusal/by_chance.lua): when a check begins, and what shows chance.
-- GIVES: EARLY EARLY_KNOWN MOST_EARLY IN_TIME LEAST_PACE_MS LEAST_CHANCE MOST_CHANCE LEAST_BEYOND MOST_BEYOND
--       CHANCE_CALLS CHECKED_AT LEAST_CHECKED USED FIRST_CHECKED CHECKED_CALLS CHANCE_CERTAIN LEAST_KEPT MOST_KEPT
--       DOUBT_KEPT UNDER_CHANCE OVER_LIMIT CHANCE NO_CHANCE RUN_BY_CHANCE

EARLY = 6 -- early 429s that begin a check: a limit that fell is found with fewer
EARLY_KNOWN = 0.34 -- share of those where calls are answered during named waits: half left a lane of 22/min standing
MOST_EARLY = 96 -- the most that are wanted: twice as many after each check that shows no chance
IN_TIME = 2 -- early 429s that one outweighs that was not early
LEAST_PACE_MS = 1000 -- ms over which a pace is measured at least: what a bucket had saved is admitted at once
LEAST_CHANCE = 0.003 -- share of calls rejected by chance below which each 429 shows a limit
MOST_CHANCE = 0.6 -- the most that is taken for chance
LEAST_BEYOND = 0.02 -- share of calls by which more are rejected beyond a limit than by chance, at least
MOST_BEYOND = 0.9 -- share of calls that is rejected beyond a limit, at most
CHANCE_CALLS = 250 -- calls over which the share is averaged
CHECKED_AT = 0.85 -- share of the pace at which a check runs: a limit of that pace rejects next to nothing there
LEAST_CHECKED = 0.1 -- share of the lane's rate that counts as that pace at least
USED = 0.25 -- share of the rate below which a pace is no sign of how fast calls are admitted
FIRST_CHECKED = 12 -- calls that show chance first, at least
CHECKED_CALLS = 40 -- calls of each later check
CHANCE_CERTAIN = 7 -- logarithm of the odds from which more 429s than by chance are believed: 1,100 to 1
LEAST_KEPT = 0.3 -- share of the rate that is kept at least where a check shows a limit
MOST_KEPT = 0.95 -- the same, at most
DOUBT_KEPT = 0.05 -- relative standard deviation of the estimate after a check
UNDER_CHANCE = 0.6 -- share of the 429s before a check that chance sends in it at least: those were many by selection
OVER_LIMIT = 0.1 -- the same for a limit, at most
CHANCE = 4 -- logarithm of the odds from which chance is believed: 55 to 1
NO_CHANCE = 2.5 -- the same for a limit: 12 to 1
RUN_BY_CHANCE = 0.001 -- how probable 429s in a row must be to count as chance
