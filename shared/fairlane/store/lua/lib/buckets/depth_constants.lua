-- Constants of the depth of buckets with learned limits. Each line has its unit, then the reason for its value.
-- GIVES: CALLS_DEEP CALLS_SHOWN DEEPER FLATTER LEAST_DEPTH_MS

CALLS_DEEP = 3 -- calls that a token bucket holds at first: with fewer, calls of different lengths cost rate
CALLS_SHOWN = 8 -- calls: the same where headers show as much; with more, different lengths cost next to nothing
DEEPER = 1.003 -- factor for each answered call: doubled after 230, about as many as probing takes for a 429
FLATTER = 0.5 -- factor for a 429: it grows slowly and is cut fast (AIMD)
LEAST_DEPTH_MS = 100 -- ms: calls that leave at once reach the provider spread over about this long
