-- Constants of buckets/arrivals: parts of a lane's burst, kept for calls that take long from permit to provider.
-- GIVES: APART_PART CALLS_APART_MS CLAIM_JITTER_MS GOOD_MS LEAST_GOOD_MS PART_OF_BURST

CLAIM_JITTER_MS = 50 -- ms by which the time from permit to claim may vary: a tick of the scheduler and a busy worker
CALLS_APART_MS = 20 -- ms between two calls besides what the limit asks, where a bucket holds one: jitter on their way
APART_PART = 0.05 -- share of the time between two calls that this takes at most
GOOD_MS = 400 -- ms from its claim in which a call may leave its worker, unless its connection is usually slower
LEAST_GOOD_MS = 50 -- ms: the same for the shortest bursts; with less, a worker could send nothing
PART_OF_BURST = 4 -- divisor: each of the two takes at most a quarter of a short burst
