"""A server that queues calls and rejects none, in virtual time: deadlines, in its queue, cost no row."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.job import Attempt
from fairlane.model.outcome import Outcome, Success, TimedOut
from fairlane.model.tokens import Usage
from tests.support.scheduling import Cluster
from tests.support.stand_ins import FakeWorker

LANE = "sim:fast"
LIMITS: dict[str, dict[str, float | None]] = {
    "no limit": {},
    "an unknown limit": {"requests_per_minute": None},
}


class Server:
    """So many calls at a time, ``seconds`` each on average, and the others wait in order.

    ``goes_on``: it also works on calls that nobody awaits any more, as many servers do.
    """

    def __init__(
        self, places: int, seconds: float, deadline_s: float, *, goes_on: bool, seed: int = 1
    ) -> None:
        self._free, self._seconds, self._deadline_s = [0.0] * places, seconds, deadline_s
        self._goes_on, self._rng = goes_on, random.Random(seed)
        self.late, self.calls = 0, 0

    def call(self, now_s: float) -> tuple[float, Outcome]:
        self.calls += 1
        place = min(range(len(self._free)), key=self._free.__getitem__)
        begins = max(now_s, self._free[place])
        ends = begins + self._seconds * min(2.0, max(0.5, self._rng.lognormvariate(0, 0.3)))
        if ends - now_s <= self._deadline_s:
            self._free[place] = ends
            return ends - now_s, Success("yes", Usage(10, 20))
        if self._goes_on:
            self._free[place] = ends
        elif begins < now_s + self._deadline_s:
            self._free[place] = now_s + self._deadline_s
        self.late += 1
        message = f"no answer within {self._deadline_s:g} s"
        return self._deadline_s, TimedOut(message, deadline_ms=round(1000 * self._deadline_s))


def cluster_of(
    redis: Redis, limits: dict[str, float | None], call: Callable[[Attempt, float], tuple[float, Outcome]]
) -> Cluster:
    cluster = Cluster(
        redis,
        provider=lambda attempt: call(attempt, (cluster.now_ms - began_ms) / 1000),
        workers=[FakeWorker("w1", 100), FakeWorker("w2", 100)],
        lanes={LANE: limits},
    )
    began_ms = cluster.now_ms
    return cluster


def succeeded(cluster: Cluster, ref: object) -> int:
    return int(cluster.redis.hget(cluster.keys.state(ref), "n:succeeded") or 0)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("goes_on", [False, True], ids=["ends with its caller", "goes on"])
@pytest.mark.parametrize(
    ("places", "seconds", "deadline_s", "rows"), [(16, 5, 30, 200), (4, 2, 20, 120), (4, 8, 120, 200)]
)
def test_every_row_is_answered_although_all_at_once_are_too_many(
    real_redis: Redis, places: int, seconds: float, deadline_s: float, rows: int, goes_on: bool, limit: str
) -> None:
    server = Server(places, seconds, deadline_s, goes_on=goes_on)
    cluster = cluster_of(real_redis, LIMITS[limit], lambda _, now_s: server.call(now_s))
    ref = cluster.submit(rows)
    cluster.run_until_finished(ref, limit_s=2.5 * rows * seconds / places + deadline_s)
    assert succeeded(cluster, ref) == rows
    assert server.late <= rows, "one crowd is too many, and few calls after it"


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    places=st.integers(1, 32),
    seconds=st.floats(0.5, 10),
    patience=st.floats(6, 30),
    rows=st.integers(10, 150),
    goes_on=st.booleans(),
    limit=st.sampled_from(sorted(LIMITS)),
)
@pytest.mark.slow(seconds=20)
def test_no_row_fails_where_the_server_answers_each_in_time_alone(
    real_redis: Redis, places: int, seconds: float, patience: float, rows: int, goes_on: bool, limit: str
) -> None:
    real_redis.flushall()
    server = Server(places, seconds, patience * seconds, goes_on=goes_on)
    cluster = cluster_of(real_redis, LIMITS[limit], lambda _, now_s: server.call(now_s))
    ref = cluster.submit(rows)
    cluster.run_until_finished(ref, limit_s=20 * (rows * seconds / places + patience * seconds))
    assert succeeded(cluster, ref) == rows


def test_a_small_run_beside_a_large_one_loses_no_row(real_redis: Redis) -> None:
    """While the server works on calls that have ended, the few rows of a run are all that start."""
    server = Server(1, 9.0, 30.0, goes_on=True)
    cluster = cluster_of(real_redis, {}, lambda _, now_s: server.call(now_s))
    large = cluster.submit(30)
    cluster.run_for(36)
    small = cluster.submit(2)
    cluster.run_until_finished(large, small, limit_s=3000)
    assert (succeeded(cluster, large), succeeded(cluster, small)) == (30, 2)


def test_rows_that_take_longer_than_the_deadline_fail_and_hold_up_no_other(real_redis: Redis) -> None:
    """Whoever waits for them: the server answers any number at once."""

    def call(attempt: Attempt, _: float) -> tuple[float, Outcome]:
        if attempt.job % 10 == 0:
            return 60.0, TimedOut("no answer within 60 s", deadline_ms=60_000)
        return 30.0, Success("yes", Usage(10, 20))

    cluster = cluster_of(real_redis, {}, call)
    ref = cluster.submit(200)
    cluster.run_for(100)
    assert succeeded(cluster, ref) == 180
    cluster.run_until_finished(ref, limit_s=1200)
    assert int(cluster.redis.hget(cluster.keys.state(ref), "n:failed") or 0) == 20


def test_a_deadline_that_no_call_can_meet_leaves_the_lane_to_others(real_redis: Redis) -> None:
    hasty, began_ms = set[str](), 0

    def call(attempt: Attempt, _: float) -> tuple[float, Outcome]:
        if attempt.run in hasty:
            return 0.01, TimedOut("no answer within 0.01 s", deadline_ms=10)
        return 0.5, Success("yes", Usage(10, 20))

    cluster = cluster_of(real_redis, {}, call)
    calm = cluster.submit(2000)
    cluster.run_for(1)
    ref = cluster.submit(200)
    hasty.add(ref.run)
    began_ms = cluster.now_ms
    cluster.run_until_finished(calm, limit_s=30)
    assert cluster.now_ms - began_ms < 10_000
    assert not cluster.redis.hget(cluster.keys.lane(LANE), "window")
