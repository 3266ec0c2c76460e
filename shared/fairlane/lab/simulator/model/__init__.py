"""One simulated model: it decides about requests, draws latencies and faults, writes replies and counts.

`http` and the rehearsal use it; it imports `limits`, `wire` and `config`, and no protocol.
"""
