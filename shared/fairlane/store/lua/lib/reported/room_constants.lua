-- Constants of reported/room. Each line has its unit, then the reason for its value.
-- GIVES: LEFT_CUT LEFT_CUT_MOST ROOM_CALLS ROOM_LEFT UNNAMED_MS KEPT_SHARE

LEFT_CUT = 0.03 -- share by which a lane slows down that sees nothing left: as after a 429 at least
LEFT_CUT_MOST = 0.1 -- share of a report by which it does so at most: a report may be stale, a 429 is not
ROOM_CALLS = 4 -- calls in a row whose answers show something left: one may meet a bucket that holds one call
UNNAMED_MS = 5000 -- ms for which that is watched where no reset is reported: twice the longest refusal of a bucket
ROOM_LEFT = 0.25 -- share of the most that was ever left which is room: jitter and whole calls leave less
KEPT_SHARE = 0.3 -- x
