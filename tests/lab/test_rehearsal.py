"""Rehearsals: the same seed takes the same course on every Redis, and nothing is lost or done twice."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import pytest
from redis import Redis

from fairlane.lab.rehearsal.figures.measure import measure
from fairlane.lab.rehearsal.recording import Recording, record
from fairlane.lab.rehearsal.scenario import Load, Network, Scenario
from fairlane.lab.rehearsal.virtual.simulated_provider import ADMITTED, Arrival
from fairlane.lab.simulator.config import SimulatedModel
from fairlane.model.lane import LaneLimits
from tests.benchmarks.control.figures import figures as all_figures

QUICK = {"requests_per_minute": 300.0, "latency_ms": 1000.0, "latency_sigma": 0.5, "windows_from": "start"}


def scenario(limits: dict[str, Any] | None = None, **changes: Any) -> Scenario:
    """150 jobs at 300 a minute, unless it is said otherwise."""
    usual: dict[str, Any] = {
        "name": "test",
        "models": {"model": SimulatedModel.model_validate(QUICK | (limits or {}))},
        "loads": (Load(jobs=150),),
        "workers": 2,
        "minutes": None,
        "warm_up_minutes": 0.0,
    }
    return Scenario.model_validate(usual | changes)


def arrivals(recording: Recording) -> list[Arrival]:
    return [arrival for lane in recording.lanes.values() for arrival in lane.log.arrivals]


def figures(recording: Recording) -> dict[str, Any]:
    """What was measured; a real server's ``cjson`` writes fourteen digits of the pace, fakeredis' all."""
    found = all_figures(recording).model_dump()
    for lane in found["lanes"]:
        lane["last_pace"] = f"{lane['last_pace']:.12g}"
    return found


def busiest(times: list[int], span_ms: int) -> int:
    """The most of these times that lie within one span."""
    return max(number + 1 - bisect_right(times, at_ms - span_ms) for number, at_ms in enumerate(times))


def test_a_real_server_and_fakeredis_take_the_same_course(real_redis: Redis, fake_redis: Redis) -> None:
    played = scenario({"headers": "full"}, loads=(Load(jobs=80), Load(jobs=40, team="ads")))

    real, fake = record(played, real_redis), record(played, fake_redis)

    assert arrivals(real) == arrivals(fake)
    assert figures(real) == figures(fake)


def test_the_same_seed_takes_the_same_course_and_another_does_not(real_redis: Redis) -> None:
    first, again = record(scenario(), real_redis), record(scenario(), real_redis)
    other = record(scenario(seed=1), real_redis)

    assert arrivals(first) == arrivals(again)
    assert arrivals(first) != arrivals(other)


@pytest.mark.parametrize("shape", ["bucket", "window", "sliding", "second"])
@pytest.mark.parametrize("headers", ["none", "retry_after", "ratelimit", "full"])
def test_every_job_is_answered_once_and_no_limit_is_exceeded(
    real_redis: Redis, shape: str, headers: str
) -> None:
    window_s = 10.0
    limits = {"shape": shape, "headers": headers, "window_seconds": window_s}

    recording = record(scenario(limits), real_redis)

    found = measure(recording)
    assert (found.complete, found.succeeded) == (True, 150)
    assert found.calls == 150 + found.rejected
    admitted = [arrival.at_ms for arrival in arrivals(recording) if arrival.verdict == ADMITTED]
    assert len(admitted) == 150
    # A bucket: 5 a second and 1 s of burst. A window's count: at its end, and at once again.
    most = {"bucket": 5 * 10 + 5, "window": 2 * 50, "sliding": 50, "second": 11 * 5}
    assert busiest(admitted, round(window_s * 1000)) <= most[shape]


def test_what_the_limits_allow_is_used_where_they_are_known(real_redis: Redis) -> None:
    lanes = {"model": LaneLimits(requests_per_minute=300)}

    found = measure(record(scenario(lanes=lanes, loads=(Load(jobs=600),)), real_redis))

    assert found.complete
    assert found.lanes[0].utilisation is not None
    assert found.lanes[0].utilisation >= 0.95


def test_a_load_without_end_outlasts_the_limits(real_redis: Redis) -> None:
    played = scenario(loads=(Load(),), minutes=2.0)

    recording = record(played, real_redis)

    assert not recording.complete
    assert recording.ended_ms - recording.began_ms == 120_000
    assert arrivals(recording)[-1].at_ms >= recording.ended_ms - 10_000


def test_models_have_lanes_of_their_own(real_redis: Redis) -> None:
    fast, slow = SimulatedModel(requests_per_minute=600), SimulatedModel(requests_per_minute=60)
    loads = (Load(model="a:fast", jobs=100), Load(model="a:slow", jobs=20))

    recording = record(scenario(models={"a:fast": fast, "a:slow": slow}, loads=loads), real_redis)

    found = measure(recording)
    assert {lane.model: lane.admitted for lane in found.lanes} == {"a:fast": 100, "a:slow": 20}


def test_progress_is_reported_until_the_end(real_redis: Redis) -> None:
    shown: list[tuple[float, int, int]] = []

    record(scenario(), real_redis, lambda *progress: shown.append(progress))

    assert [seconds for seconds, _, _ in shown] == sorted(seconds for seconds, _, _ in shown)
    assert shown[-1][1:] == (150, 150)


def test_faults_and_refusals_end_in_one_record_each(real_redis: Redis) -> None:
    faults = {"error_500": 0.1, "reset": 0.1, "malformed": 0.1, "cut_stream": 0.05}

    recording = record(scenario({"faults": faults}), real_redis)

    found = measure(recording)
    assert found.complete
    assert 100 <= found.succeeded <= 150
    assert found.calls > 150


def test_a_missing_model_is_named() -> None:
    with pytest.raises(ValueError, match="no model 'other'; known: model"):
        scenario(loads=(Load(model="other", jobs=1),))


def test_a_load_without_end_needs_an_end() -> None:
    with pytest.raises(ValueError, match="needs minutes"):
        scenario(loads=(Load(),))


def test_a_network_without_spread_takes_the_same_time_each_way(real_redis: Redis) -> None:
    network = Network(median_ms=50, sigma=0, pickup_ms=0)

    recording = record(scenario({"latency_sigma": 0.0}, network=network, loads=(Load(jobs=1),)), real_redis)

    (served,) = recording.lanes["sim:model"].log.served
    assert served[1] - served[0] == 1000
    assert recording.lanes["sim:model"].log.last_ms == served[1] + 50
