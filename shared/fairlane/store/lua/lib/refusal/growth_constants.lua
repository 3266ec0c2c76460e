-- Constants of limits on growth (lib/refusal/growth.lua). Each line has its unit, then its reason.
-- GIVES: GROWTH_SLOPE GROWTH_LEAST GROWTH_GENTLER GROWTH_STEEPER GROWTH_LITTLE GROWTH_MUCH GROWTH_KEPT GROWTH_HALVED
--       GROWTH_FEW GROWTH_USED GROWTH_SPAN_MS

GROWTH_SLOPE = 2 -- e-folds a minute after the first such 429: the rate doubles in 20 s
GROWTH_LEAST = 0.35 -- e-folds a minute: the slowest growth, which doubles the rate in two minutes
GROWTH_GENTLER = 0.7 -- factor on the growth after a 429 at little growth since the previous one
GROWTH_STEEPER = 1.3 -- the same after one at much growth
GROWTH_LITTLE = 1.5 -- factor by which the rate has grown at most to count as little
GROWTH_MUCH = 4 -- the same, at least, to count as much
GROWTH_KEPT = 0.85 -- share of the rate that is kept: the rate of ten seconds ago, if it grows by a sixth meanwhile
GROWTH_HALVED = 0.5 -- the same if next to nothing went through since the previous 429
GROWTH_FEW = 5 -- calls: fewer are next to nothing
GROWTH_USED = 2 -- factor on the mean rate since the previous 429: a rate that has grown fivefold is 2.5 times its mean
GROWTH_SPAN_MS = 10000 -- ms: Anthropic's waits, and about the span over which providers compare rates
