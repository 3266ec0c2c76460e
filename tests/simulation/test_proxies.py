"""A proxy that answers 504 after a time, before a server that queues or is down, in virtual time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.job import Attempt
from fairlane.model.outcome import Outcome, Success, TimedOut
from fairlane.model.run import RunRef
from fairlane.model.tokens import Usage
from tests.simulation.test_queueing_servers import LANE, LIMITS, Server, cluster_of, succeeded
from tests.support.scheduling import Cluster


def gives_up(after_s: float) -> tuple[float, Outcome]:
    return after_s, TimedOut("504", 504, after_ms=round(1000 * after_s))


def behind_a_proxy(server: Server) -> Callable[[Attempt, float], tuple[float, Outcome]]:
    """The server's own deadline is its proxy's."""

    def call(_: Attempt, now_s: float) -> tuple[float, Outcome]:
        took_s, outcome = server.call(now_s)
        return gives_up(took_s) if isinstance(outcome, TimedOut) else (took_s, outcome)

    return call


def failed(cluster: Cluster, ref: RunRef) -> int:
    return int(cluster.redis.hget(cluster.keys.state(ref), "n:failed") or 0)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("goes_on", [False, True], ids=["ends with its caller", "goes on"])
@pytest.mark.parametrize(
    ("places", "seconds", "proxy_s", "rows"), [(8, 3, 10, 150), (4, 8, 60, 200), (1, 5, 60, 60)]
)
def test_every_row_is_answered_although_the_proxy_gives_up_while_they_queue(
    real_redis: Redis, places: int, seconds: float, proxy_s: float, rows: int, goes_on: bool, limit: str
) -> None:
    server = Server(places, seconds, proxy_s, goes_on=goes_on, seed=2)
    cluster = cluster_of(real_redis, LIMITS[limit], behind_a_proxy(server))
    ref = cluster.submit(rows)
    cluster.run_until_finished(ref, limit_s=2.3 * rows * seconds / places + proxy_s)
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
def test_no_row_fails_where_the_proxy_waits_for_each_that_is_alone(
    real_redis: Redis, places: int, seconds: float, patience: float, rows: int, goes_on: bool, limit: str
) -> None:
    real_redis.flushall()
    server = Server(places, seconds, patience * seconds, goes_on=goes_on, seed=2)
    cluster = cluster_of(real_redis, LIMITS[limit], behind_a_proxy(server))
    ref = cluster.submit(rows)
    cluster.run_until_finished(ref, limit_s=20 * (rows * seconds / places + patience * seconds))
    assert succeeded(cluster, ref) == rows


@pytest.mark.parametrize("after_s", [0.05, 10.0])
def test_504s_while_nobody_is_answered_open_the_circuit(real_redis: Redis, after_s: float) -> None:
    """A server that is down from the 20th to the 120th second: calls go on a second each before and after."""

    def call(_: Attempt, now_s: float) -> tuple[float, Outcome]:
        return gives_up(after_s) if 20 <= now_s < 120 else (1.0, Success("yes", Usage(10, 20)))

    cluster = cluster_of(real_redis, {"max_concurrency": 10}, call)
    ref = cluster.submit(600)
    cluster.run_for(20 + 3 * after_s + 2)
    assert cluster.redis.hget(cluster.keys.lane(LANE), "circuit") in (b"open", b"half-open")
    assert not cluster.redis.hget(cluster.keys.lane(LANE), "window")
    cluster.run_until_finished(ref, limit_s=300)
    assert (succeeded(cluster, ref), failed(cluster, ref)) == (600, 0)


def test_an_outage_of_a_server_that_queues_costs_no_row(real_redis: Redis) -> None:
    """It begins while calls queue, so that those look late at first."""
    server = Server(8, 3.0, 30.0, goes_on=False, seed=2)
    alive = behind_a_proxy(server)

    def call(attempt: Attempt, now_s: float) -> tuple[float, Outcome]:
        return gives_up(30.0) if 20 <= now_s < 400 else alive(attempt, now_s)

    cluster = cluster_of(real_redis, {}, call)
    ref = cluster.submit(400)
    opened_s = None
    for second in range(0, 400, 10):
        cluster.run_for(10)
        circuit = cluster.redis.hget(cluster.keys.lane(LANE), "circuit")
        if opened_s is None and circuit in (b"open", b"half-open"):
            opened_s = second + 10
    assert opened_s is not None, "it shows as an outage"
    cluster.run_until_finished(ref, limit_s=600)
    assert (succeeded(cluster, ref), failed(cluster, ref)) == (400, 0)


def test_rows_that_the_proxy_never_waits_for_fail_and_hold_up_no_other(real_redis: Redis) -> None:
    def call(attempt: Attempt, _: float) -> tuple[float, Outcome]:
        return gives_up(60.0) if attempt.job % 20 == 0 else (20.0, Success("yes", Usage(10, 20)))

    cluster = cluster_of(real_redis, {}, call)
    ref = cluster.submit(400)
    cluster.run_for(100)
    assert succeeded(cluster, ref) == 380
    cluster.run_until_finished(ref, limit_s=2400)
    assert failed(cluster, ref) == 20
