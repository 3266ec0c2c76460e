-- Constants of reported/quota. Each line has its unit, then the reason for its value.
-- GIVES: SAME_END_MS SAME_END_PART FELL_LEAST ROSE_MOST TRY_AGAIN_MS RENEWED_MS LIES_LEAST LONGEST_QUOTA_MS

SAME_END_MS = 1500 -- ms by which reports of one end differ: servers round to seconds, and answers travel
SAME_END_PART = 0.1 -- share of the remaining time by which they may also differ: a busy server's answers come late
FELL_LEAST = 5 -- calls by which a quota must have fallen towards one end: fewer may be others'
ROSE_MOST = 3 -- calls by which it may rise meanwhile, besides those in flight: calls overtake each other
TRY_AGAIN_MS = 1000 -- ms: the longest time between two checks whether a call may test a used-up quota
RENEWED_MS = 5000 -- ms for which a renewed quota counts as it was before, unless an answer reports it
LIES_LEAST = 2 -- calls in a row that are answered beyond a quota until it is ignored: one may have been its last
LONGEST_QUOTA_MS = 3600000 -- ms: a lane that waits for longer is held, which its 429s decide (circuit/hold)
