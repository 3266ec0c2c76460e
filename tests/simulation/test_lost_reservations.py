"""A run's budget counts a call whose lease Redis has lost as one whose answer is lost: as reserved."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.run import RunState
from tests.support.redis import emptied
from tests.support.scheduling import Cluster
from tests.support.stand_ins import FakeWorker

USED = 15  # tokens of a call that is answered
ROWS = 20


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=12, deadline=None)
@given(
    lost_at_s=st.floats(0.05, 2.0),
    parts=st.sets(st.sampled_from(["leased", "leases", "lane", "in_flight"]), min_size=1),
    budget=st.sampled_from([100, 250, 10_000]),
    slots=st.integers(1, 8),
)
def test_a_budget_counts_what_was_used_and_what_lost_calls_had_reserved(
    real_redis: Redis, lost_at_s: float, parts: set[str], budget: int, slots: int
) -> None:
    cluster = Cluster(emptied(real_redis), workers=[FakeWorker("w1", slots)])
    redis, keys = cluster.redis, cluster.keys
    named = {"leased": keys.leased, "leases": keys.leases}
    named |= {"lane": keys.lane("sim:fast"), "in_flight": keys.in_flight("sim:fast")}
    ref = cluster.submit(ROWS, bounds={"budget_tokens": budget})
    cluster.run_for(lost_at_s)
    reserved = 0.0
    if "leased" in parts:
        reserved = sum(json.loads(lease)["held"][0] for lease in redis.hvals(keys.leased))
    for part in parts:
        redis.delete(named[part])
    cluster.run_until_finished(ref, limit_s=120)

    status, state = cluster.status(ref), redis.hgetall(keys.state(ref))
    succeeded = int(state.get(b"n:succeeded", 0))
    assert float(state[b"tokens"]) == succeeded * USED + reserved <= budget
    assert status.state in (RunState.COMPLETED, RunState.STOPPED)
    assert status.jobs_done == ROWS
    if status.state is RunState.STOPPED:
        assert "budget" in status.reason
