"""A leader that is paused between two of its commands while another leads: nothing is lost, or done twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from fairlane.model.decision import RetryPolicy
from fairlane.model.job import Attempt
from fairlane.model.outcome import NetworkFailure, Outcome
from fairlane.model.run import RunState
from fairlane.store.write.leader import LeaderLease
from tests.support.scheduler_parts import LEADER_LEASE_MS
from tests.support.scheduling import Cluster
from tests.support.stand_ins import answers

PAUSE_S = 4.0


class Pausable:
    """A Redis client that does something else before its n-th command from now."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._left: int | None = None
        self._meanwhile: Callable[[], object] = lambda: None

    def pause_before(self, command: int, meanwhile: Callable[[], object]) -> None:
        self._left, self._meanwhile = command, meanwhile

    def pipeline(self, transaction: bool = True) -> Any:
        pipeline = self._redis.pipeline(transaction=transaction)
        execute = pipeline.execute
        pipeline.execute = lambda *args, **kwargs: self._counted(execute, *args, **kwargs)
        return pipeline

    def __getattr__(self, name: str) -> Any:
        command = getattr(self._redis, name)
        return lambda *args, **kwargs: self._counted(command, *args, **kwargs)

    def _counted(self, command: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                self._left = None
                self._meanwhile()
        return command(*args, **kwargs)


class Slow(Pausable):
    """A Redis client that does something else before each of its commands."""

    def __init__(self, redis: Redis) -> None:
        super().__init__(redis)
        self.before_each: Callable[[], object] = lambda: None

    def _counted(self, command: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.before_each()
        return command(*args, **kwargs)


def fails_at_first(attempt: Attempt) -> tuple[float, Outcome]:
    if attempt.number == 1 and attempt.job % 5 == 0:
        return 0.3, NetworkFailure("reset")
    return answers(attempt)


@pytest.mark.parametrize("command", range(0, 48, 2))
def test_a_pause_between_any_two_commands_loses_nothing(real_redis: Redis, command: int) -> None:
    client = Pausable(real_redis)
    cluster = Cluster(
        real_redis,
        lanes={"sim:fast": {"requests_per_minute": 1200}},
        provider=fails_at_first,
        leader_redis=client,
        standbys=1,
    )
    policy = RetryPolicy(max_attempts=4, initial_delay=0.5, max_delay=1.0)
    early = cluster.submit(25, judges=["sim:judge"], retry=policy)
    cluster.run_for(1.2)
    cancelled = cluster.submit(5)
    cluster.run_for(0.02)
    leader = cluster.processes[0]
    late = [cluster.submit(5), cluster.submit(5, team="ads")]
    cluster.cancel(cancelled)

    def another_leads() -> None:
        leader.running = False
        cluster.run_for(PAUSE_S)
        leader.running = True

    client.pause_before(command, another_leads)
    leader.due_ms = cluster.now_ms
    took = cluster.run_until_finished(early, *late, cancelled, limit_s=300)

    assert took < 60
    for ref in (early, *late):
        status, spec = cluster.status(ref), cluster.specs[ref]
        assert (status.state, status.jobs_done) == (RunState.COMPLETED, spec.jobs)
        assert sum(status.by_state.values()) == spec.jobs
        stored = {int(job) for job in real_redis.hkeys(cluster.keys.results(ref))}
        assert stored == set(range(spec.jobs))
    assert cluster.status(cancelled).state is RunState.CANCELLED
    assert cluster.lanes.on_slots(["sim:fast", "sim:judge"]) == {"sim:fast": 0, "sim:judge": 0}
    assert {attempt.run for attempt in cluster.late} <= {cancelled.run}


@pytest.mark.parametrize("command_s", [0.02, 0.1, 0.2])
def test_a_pass_that_takes_longer_than_a_lease_keeps_it(real_redis: Redis, command_s: float) -> None:
    """A busy machine or a large deployment: no standby takes over, and would do no better."""
    client = Slow(real_redis)
    cluster = Cluster(real_redis, leader_redis=client)
    cluster.run_for(1.2)
    standby = LeaderLease(real_redis, cluster.keys, "standby", LEADER_LEASE_MS)

    def another_bids() -> None:
        cluster.clock.advance(command_s)
        assert not standby.acquire(cluster.now_ms).epoch

    ref = cluster.submit(25, judges=["sim:judge"])
    scheduler = cluster.processes[0].scheduler
    scheduler.store_came_back()
    client.before_each = another_bids
    scheduler.tick()
    client.before_each = lambda: None
    cluster.run_until_finished(ref)
    assert cluster.status(ref).state is RunState.COMPLETED
