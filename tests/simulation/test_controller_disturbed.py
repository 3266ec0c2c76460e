"""A lane without a configured limit, and a provider whose limit changes: no job is lost."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis

from fairlane.lab.rehearsal.recording import record
from fairlane.lab.rehearsal.scenario import Load, Scenario
from fairlane.lab.rehearsal.virtual.simulated_provider import ADMITTED, OUTAGE
from fairlane.lab.simulator.config import SimulatedModel
from tests.benchmarks.control.figures import figures

JOBS = 120
USUAL = {"requests_per_minute": 600, "latency_ms": 1000, "latency_sigma": 0.5, "windows_from": "start"}

DISTURBANCES: dict[str, dict[str, Any]] = {
    "the limit halves": {"limit_changes": ((5, 300),)},
    "the limit doubles": {"limit_changes": ((5, 1200),)},
    "others come": {"foreign": ((3, 10, 400),)},
    "everything is refused for a while": {"burst_429": ((4, 3),)},
    "tokens are short": {"tokens_per_minute": 60_000, "output_tokens": 100},
    "places are few": {"requests_per_minute": None, "max_concurrency": 5},
    "places are few and calls wait": {"requests_per_minute": None, "max_concurrency": 5, "queue": 1000},
    "growth is limited": {"acceleration": 2.0, "acceleration_floor": 60},
}


def scenario(limits: dict[str, Any], **more: Any) -> Scenario:
    model = SimulatedModel.model_validate(USUAL | limits)
    usual: dict[str, Any] = {"name": "test", "models": {"model": model}, "loads": (Load(jobs=JOBS),)}
    return Scenario.model_validate(usual | {"minutes": None, "warm_up_minutes": 0.0} | more)


@pytest.mark.parametrize("disturbance", DISTURBANCES)
def test_every_job_is_answered_once_whatever_the_limits_do(real_redis: Redis, disturbance: str) -> None:
    recording = record(scenario(DISTURBANCES[disturbance]), real_redis)

    found = figures(recording)
    assert (found.complete, found.succeeded) == (True, JOBS)
    verdicts = [a.verdict for a in recording.lanes["sim:model"].log.arrivals]
    assert verdicts.count(ADMITTED) == JOBS


def test_calls_that_are_shed_are_made_again(real_redis: Redis) -> None:
    recording = record(scenario({}, sheds=((6, 10),)), real_redis)

    found = figures(recording)
    shed = len(recording.lanes["sim:model"].log.sheds)
    assert 1 <= shed <= 10
    assert (found.complete, found.succeeded) == (True, JOBS)
    assert found.calls == JOBS + found.rejected


def test_few_calls_go_into_an_outage(real_redis: Redis) -> None:
    recording = record(scenario({"outages": ((25, 60),)}, loads=(Load(jobs=600),)), real_redis)

    found = figures(recording)
    verdicts = [a.verdict for a in recording.lanes["sim:model"].log.arrivals]
    assert found.complete
    assert verdicts.count(OUTAGE) == found.lanes[0].calls_in_outages
    # The circuit opens after five failures that began apart in time; what was under way by then fails too.
    assert 0 < verdicts.count(OUTAGE) < 60
