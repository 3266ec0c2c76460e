-- Constants of reported/room. Each line has its unit, then the reason for its value.
-- GIVES: LEFT_CUT LEFT_CUT_MOST ROOM_CALLS ROOM_LEFT UNKNOWN_WINDOW_MS

LEFT_CUT = 0.03 -- share by which a lane slows down that sees nothing left: as after a 429 at least
LEFT_CUT_MOST = 0.1 -- share of a report by which it does so at most: a report may be stale, a 429 is not
ROOM_CALLS = 4 -- calls in a row whose answers show something left: one may find a bucket full that holds one call
ROOM_LEFT = 0.25 -- share of the most that was ever left which is room: jitter and whole calls leave less unused
UNKNOWN_WINDOW_MS = 5000 -- ms that are watched where no reset is reported: 429s of a bucket last half as long
