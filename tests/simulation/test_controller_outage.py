"""An outage of two minutes: how many calls are made into it, and what follows."""

from __future__ import annotations

from redis import Redis

from fairlane.lab.rehearsal.recording import record
from tests.benchmarks.control.catalogue import CATALOGUE
from tests.benchmarks.control.figures import figures
from tests.support.outages import probes_within

FAILURES_THAT_OPEN, LASTS_S = 5, 120


def test_an_outage_meets_no_more_calls_than_open_the_circuit_and_probe_it(real_redis: Redis) -> None:
    scenario = CATALOGUE["outage"](6.0)
    lane = figures(record(scenario, real_redis)).lanes[0]
    assert 0 < lane.calls_in_outages <= FAILURES_THAT_OPEN + probes_within(LASTS_S)
    assert lane.rejected_share < 0.02, "no burst afterwards"
