-- Constants of reported/quota. Each line has its unit, then the reason for its value.
-- GIVES: SAME_END_MS SAME_END_PART FELL_LEAST ROSE_MOST TRY_AGAIN_MS RENEWED_MS LIES_LEAST LONGEST_QUOTA_MS

SAME_END_MS = 1500 -- ms by which reports of one end differ: servers round to seconds, and answers travel
SAME_END_PART = 0.1 -- share of what is left of it by which they differ, too: a busy server's answers come late
FELL_LEAST = 5 -- calls by which a quota must have fallen towards one end: fewer may be others'
ROSE_MOST = 3 -- calls, besides those in flight, by which it may rise meanwhile: calls overtake each other
TRY_AGAIN_MS = 1000 -- ms: the longest between two looks whether a call may try a quota that is used up
RENEWED_MS = 5000 -- ms for which a quota that has renewed holds what it held before, unless an answer says more
LIES_LEAST = 2 -- calls in a row that are answered beyond a quota: one may have been the last that was left
LONGEST_QUOTA_MS = 3600000 -- ms: a lane that waits for longer is held, which its 429s decide (circuit/hold)
