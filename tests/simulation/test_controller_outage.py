"""An outage of two minutes: how many calls are made into it, and what follows."""

from __future__ import annotations

from redis import Redis

from fairlane.lab.rehearsal.catalogue import CATALOGUE
from fairlane.lab.rehearsal.figures.measure import measure
from fairlane.lab.rehearsal.recording import record

FAILURES_THAT_OPEN, PROBES = 5, 7  # after 1, 3, 7, 15, 31, 63 and 123 s


def test_an_outage_meets_no_more_calls_than_open_the_circuit_and_probe_it(real_redis: Redis) -> None:
    scenario = CATALOGUE["outage"](6.0)
    lane = measure(record(scenario, real_redis)).lanes[0]
    assert 0 < lane.calls_in_outages <= FAILURES_THAT_OPEN + PROBES
    assert lane.rejected_share < 0.02, "no burst afterwards"
