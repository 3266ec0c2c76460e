"""A server that queues calls, of which nobody has said how many it serves at once, in virtual time."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.job import Attempt
from fairlane.model.outcome import Outcome, RateLimited, Success
from fairlane.model.run import RunRef
from fairlane.model.tokens import Usage
from tests.simulation.test_queueing_servers import LANE, Server, cluster_of, succeeded
from tests.support.scheduling import Cluster

FIRST: dict[str, float | None] = {"first_concurrency": 4}


def took_s(cluster: Cluster, ref: RunRef, limit_s: float) -> float:
    began_ms = cluster.now_ms
    cluster.run_until_finished(ref, limit_s=limit_s)
    return (cluster.now_ms - began_ms) / 1000


@pytest.mark.parametrize(("places", "seconds", "rows"), [(16, 5, 200), (64, 2, 1000), (6, 2, 300)])
def test_calls_at_once_grow_to_what_the_server_serves(
    real_redis: Redis, places: int, seconds: float, rows: int
) -> None:
    server = Server(places, seconds, 120.0, goes_on=True)
    cluster = cluster_of(real_redis, FIRST, lambda _, now_s: server.call(now_s))
    ref = cluster.submit(rows)
    ideal_s = rows * 1.05 * seconds / places
    assert took_s(cluster, ref, 6 * ideal_s) < 2 * ideal_s
    assert (succeeded(cluster, ref), server.calls) == (rows, rows)
    assert cluster.peak[LANE] <= 2 * max(8, places)


@pytest.mark.parametrize("places", [1, 2, 4])
def test_a_server_of_few_places_has_few_calls_waiting_most_of_the_time(
    real_redis: Redis, places: int
) -> None:
    server, met = Server(places, 2, 120.0, goes_on=True), []

    def call(_: Attempt, now_s: float) -> tuple[float, Outcome]:
        met.append(int(cluster.redis.hget(cluster.keys.lane(LANE), "search_window") or 4))
        return server.call(now_s)

    cluster = cluster_of(real_redis, FIRST, call)
    ref = cluster.submit(200)
    ideal_s = 200 * 2.1 / places
    assert took_s(cluster, ref, 2 * ideal_s) < 1.1 * ideal_s
    assert max(met) <= 8
    assert sum(window > 4 for window in met) < len(met) / 3


def test_a_rejection_takes_back_what_the_window_was_widened_by(real_redis: Redis) -> None:

    ends = list[float]()

    def call(_: Attempt, now_s: float) -> tuple[float, Outcome]:
        if sum(end > now_s for end in ends) >= 6:
            return 0.1, RateLimited("too many at once")
        ends.append(now_s + 2.0)
        return 2.0, Success("yes", Usage(10, 20))

    cluster = cluster_of(real_redis, FIRST, call)
    ref = cluster.submit(60)
    cluster.run_until_finished(ref, limit_s=300)
    assert succeeded(cluster, ref) == 60
    assert int(cluster.redis.hget(cluster.keys.lane(LANE), "search_window") or 4) <= 8


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    places=st.integers(1, 40),
    seconds=st.floats(0.5, 10),
    patience=st.floats(6, 30),
    rows=st.integers(10, 150),
    goes_on=st.booleans(),
    seed=st.integers(1, 1000),
)
@pytest.mark.slow(seconds=20)
def test_no_row_fails_and_few_calls_fail(
    real_redis: Redis, places: int, seconds: float, patience: float, rows: int, goes_on: bool, seed: int
) -> None:
    """Where the server answers each in time alone."""
    real_redis.flushall()
    server = Server(places, seconds, patience * seconds, goes_on=goes_on, seed=seed)
    cluster = cluster_of(real_redis, FIRST, lambda _, now_s: server.call(now_s))
    ref = cluster.submit(rows)
    cluster.run_until_finished(ref, limit_s=20 * (rows * seconds / places + patience * seconds))
    assert succeeded(cluster, ref) == rows
    assert server.late <= 20 + rows / 4
