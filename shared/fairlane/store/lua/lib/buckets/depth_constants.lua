-- Constants of the depth that buckets of learned limits have. Each line has its unit, then the reason for its value.
-- GIVES: CALLS_DEEP CALLS_SHOWN DEEPER FLATTER LEAST_DEPTH_MS

CALLS_DEEP = 3 -- calls that a bucket of tokens holds at first: fewer, and the spread of their lengths costs rate
CALLS_SHOWN = 8 -- the same where headers show as much: from there on that spread costs next to nothing
DEEPER = 1.003 -- factor with each answered call: as deep again after 230, about the refusals that probing may cost
FLATTER = 0.5 -- factor with a refusal
LEAST_DEPTH_MS = 100 -- ms: calls that leave at once reach the provider spread over about this long
