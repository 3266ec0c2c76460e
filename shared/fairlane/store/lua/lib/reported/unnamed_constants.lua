-- Constants of reported/unnamed. Each line has its unit, then the reason for its value.
-- GIVES: SAME_KIND FEW_TOKENS PART_OF_CALL KNOWN_AT MOST_VOTES

SAME_KIND = 3 -- factor: limits that are sold grow by less at a time, and a call has more tokens than that
FEW_TOKENS = 4 -- tokens a call: with fewer, a fall of one call and of its tokens look alike
PART_OF_CALL = 0.25 -- share of a call's tokens: a bucket may refill meanwhile; less may be others' calls
KNOWN_AT = 2 -- reports that agree: one alone may be somebody else's call, or a bucket's refill
MOST_VOTES = 4 -- reports that count at most, so that as few others refute them
