"""A mistake costs five calls on any lane, and a good run waits half a second for that at most."""

from __future__ import annotations

import pytest
from redis import Redis

from fairlane.model.job import Attempt
from fairlane.model.outcome import Outcome, PermanentFailure, Success
from fairlane.model.run import RunRef
from fairlane.model.tokens import Usage
from fairlane.store.rejections import ENOUGH_REFUSALS
from tests.support.scheduling import Cluster
from tests.support.stand_ins import FakeWorker

LANE, SLOTS, ROWS = "sim:fast", 400, 300
A_SECOND = 500
GONE = PermanentFailure("the parameter of 17 is unknown", 422)
LIMITS: dict[str, dict[str, float | None]] = {
    "no limit": {},
    "an unknown limit": {"requests_per_minute": None},
    "500 a second": {"requests_per_minute": 60 * A_SECOND},
}
WAITS_S = 0.55
"""The most that a run waits for it: 250 ms, and the doublings up to the workers' slots."""


class World:
    """A provider that answers after ``took_s``, or rejects all calls after ``rejects_s``."""

    def __init__(self, redis: Redis, limit: dict[str, float | None]) -> None:
        self.took_s, self.rejects_s = 0.3, 0.0
        self.cluster = Cluster(
            redis,
            provider=self.call,
            workers=[FakeWorker("w1", SLOTS)],
            lanes={LANE: limit},
            bounds={"first_calls": ENOUGH_REFUSALS},
        )

    def call(self, attempt: Attempt) -> tuple[float, Outcome]:
        if self.rejects_s:
            return self.rejects_s, GONE
        return self.took_s, Success("yes", Usage(10, 5))

    def warm(self) -> None:
        self.run(1000)
        self.cluster.run_for(20)

    def run(self, rows: int) -> tuple[RunRef, float]:
        """Returns the run, and how long it took in seconds."""
        from_ms = self.cluster.now_ms
        ref = self.cluster.submit(rows)
        self.cluster.run_until_finished(ref)
        return ref, (self.cluster.now_ms - from_ms) / 1000


@pytest.fixture(params=LIMITS)
def world(request: pytest.FixtureRequest, real_redis: Redis) -> World:
    return World(real_redis, LIMITS[request.param])


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("rejects_s", [0.05, 0.2])
def test_a_wrong_request_costs_five_calls(world: World, warm: bool, rejects_s: float) -> None:
    if warm:
        world.warm()
    world.rejects_s = rejects_s
    ref, took_s = world.run(ROWS)
    assert len(world.cluster.started(ref=ref)) == ENOUGH_REFUSALS
    assert took_s < rejects_s + 1


def test_a_lane_whose_rejections_are_slow_lets_a_second_mistake_start_five_too(world: World) -> None:
    world.warm()
    world.rejects_s = 0.7
    world.run(ROWS)
    ref, _ = world.run(ROWS)
    assert len(world.cluster.started(ref=ref)) == ENOUGH_REFUSALS


@pytest.mark.parametrize("took_s", [0.05, 2.0, 30.0])
def test_a_good_run_on_a_warm_lane_waits_half_a_second_at_most(world: World, took_s: float) -> None:
    world.warm()
    world.took_s = took_s
    _, all_s = world.run(ROWS)
    assert all_s <= took_s + ROWS / A_SECOND + WAITS_S
