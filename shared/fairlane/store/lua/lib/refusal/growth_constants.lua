-- Constants of limits on growth (lib/refusal/growth.lua). Each line has its unit, then its reason.
-- GIVES: GROWTH_SLOPE GROWTH_LEAST GROWTH_GENTLER GROWTH_STEEPER GROWTH_LITTLE GROWTH_MUCH GROWTH_KEPT GROWTH_HALVED
--       GROWTH_FEW GROWTH_USED GROWTH_SPAN_MS

GROWTH_SLOPE = 2 -- e-folds a minute after the first such 429: the rate doubles in 20 s
GROWTH_LEAST = 0.35 -- e-folds a minute: the rate doubles in two minutes at least
GROWTH_GENTLER = 0.7 -- factor on that after a 429 that met little growth since the one before
GROWTH_STEEPER = 1.3 -- factor after one that met much
GROWTH_LITTLE = 1.5 -- factor by which the rate has grown then, at most
GROWTH_MUCH = 4 -- factor by which it has grown then, at least
GROWTH_KEPT = 0.85 -- share of the rate that is kept: what passed ten seconds ago, where it grows by a sixth meanwhile
GROWTH_HALVED = 0.5 -- share where next to nothing went through since the 429 before
GROWTH_FEW = 5 -- calls: fewer are next to nothing
GROWTH_USED = 2 -- factor on the mean rate since the 429 before: one that has grown fivefold is 2.5 times its mean
GROWTH_SPAN_MS = 10000 -- ms: Anthropic's waits, and about the time over which providers count what they compare
