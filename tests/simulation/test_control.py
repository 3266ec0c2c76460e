"""Lanes that are stopped and started, and runs that are cancelled, in virtual time."""

from __future__ import annotations

from itertools import pairwise

from redis import Redis

from fairlane.model.decision import RetryPolicy
from fairlane.model.job import Attempt, JobState
from fairlane.model.outcome import AccessDenied, NetworkFailure, Outcome, Success
from fairlane.model.run import RunState
from tests.support.outages import probes_within
from tests.support.scheduling import Cluster, assert_complete
from tests.support.stand_ins import FakeWorker, answers, scripted


def test_a_lane_that_refuses_access_is_parked_until_it_is_resumed(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, provider=scripted({}, lambda attempt: (0.1, AccessDenied("no quota", 403))))
    ref = cluster.submit(30, model="sim:fast")
    other = cluster.submit(30, model="sim:other")
    cluster.run_for(1)
    assert cluster.lanes.view("sim:fast").parked == "no quota"
    begun = len(cluster.started("sim:fast"))
    cluster.run_for(30)
    assert len(cluster.started("sim:fast")) == begun

    cluster.provider = answers
    cluster.lanes.resume("sim:fast", cluster.now_ms)
    cluster.lanes.resume("sim:other", cluster.now_ms)
    cluster.run_until_finished(ref, other)

    assert_complete(cluster, ref, JobState.SUCCEEDED)
    assert {result.attempts for result in cluster.results(ref).values()} == {1}


def test_a_paused_lane_starts_nothing_until_it_is_resumed(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, lanes={"sim:fast": {"requests_per_minute": 600}})
    ref = cluster.submit(60)
    cluster.run_for(2)
    cluster.lanes.pause("sim:fast")
    begun = len(cluster.starts)
    cluster.run_for(60)
    assert len(cluster.starts) == begun

    cluster.lanes.resume("sim:fast", cluster.now_ms)
    cluster.run_until_finished(ref)

    assert_complete(cluster, ref, JobState.SUCCEEDED)
    assert cluster.starts[begun].at_ms - cluster.starts[begun - 1].at_ms <= 60_000 + 1000


def test_an_open_circuit_lets_one_probe_out_and_then_all(real_redis: Redis) -> None:
    outage = [True]

    def provider(attempt: Attempt) -> tuple[float, Outcome]:
        return (0.3, NetworkFailure("refused")) if outage[0] else answers(attempt)

    cluster = Cluster(real_redis, lanes={"sim:fast": {"requests_per_minute": 300}}, provider=provider)
    ref = cluster.submit(40, retry=RetryPolicy(max_attempts=100, initial_delay=0.1, max_delay=1))
    cluster.run_for(20)
    assert cluster.lanes.view("sim:fast").circuit == "open"
    begun = len(cluster.starts)
    cluster.run_for(30)
    assert len(cluster.starts) - begun <= probes_within(50) - probes_within(20) + 1
    probes = [start.at_ms for start in cluster.starts[begun:]]
    assert min(after - before for before, after in pairwise(probes)) > 4000, "one at a time"

    outage[0] = False
    cluster.run_until_finished(ref)

    assert_complete(cluster, ref, JobState.SUCCEEDED)


def test_a_cancelled_run_stops_at_once_and_frees_its_slots(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, workers=[FakeWorker("w1", 10)], provider=lambda a: (5.0, Success("yes")))
    ref = cluster.submit(100)
    cluster.run_for(1)
    cluster.cancel(ref)
    cluster.run_for(2)
    assert cluster.status(ref).state is RunState.CANCELLED
    assert cluster.status(ref).progress == 1
    assert len(cluster.starts) == 10

    other = cluster.submit(10)
    cluster.run_until_finished(other)

    assert_complete(cluster, other, JobState.SUCCEEDED)
    assert cluster.late == []
