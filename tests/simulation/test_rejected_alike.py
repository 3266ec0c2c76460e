"""A provider that rejects all calls in the same words loses no row, and a bad row fails alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.job import Attempt, JobState
from fairlane.model.outcome import Outcome, PermanentFailure, Success
from fairlane.model.run import RunRef
from fairlane.model.tokens import Usage
from tests.support.redis import emptied
from tests.support.scheduling import Cluster
from tests.support.stand_ins import FakeWorker

LANE, ROWS, CAP = "sim:fast", 300, 150
GENERATED = (Phase.explicit, Phase.generate)
"""To shrink a course takes minutes."""

SUCCESS = Success("yes", Usage(10, 5))
CAPPED = PermanentFailure("the plan of team 17 is over its allowance of 5000", 400)
LIMITS: dict[str, dict[str, float | None]] = {
    "no limit": {},
    "an unknown limit": {"requests_per_minute": None},
    "5 a second": {"requests_per_minute": 300},
    "one at a time": {"max_concurrency": 1},
}


class World:
    """A provider that answers ``cap`` calls, and rejects all others until ``lifted_s``."""

    def __init__(
        self, redis: Redis, limit: dict[str, float | None], took_s: float, rejects_s: float, slots: int
    ) -> None:
        self.cluster = Cluster(
            redis, provider=self.call, workers=[FakeWorker("w1", slots)], lanes={LANE: limit}
        )
        self.took_s, self.rejects_s = took_s, rejects_s
        self.cap, self.lifted_s, self.calls, self.rejected = CAP, 180.0, Counter[int](), 0
        self.bad: Callable[[int], Outcome | None] = lambda _: None
        self._began_ms = self.cluster.now_ms

    @property
    def passed_s(self) -> float:
        return (self.cluster.now_ms - self._began_ms) / 1000

    def call(self, attempt: Attempt) -> tuple[float, Outcome]:
        self.calls[attempt.job] += 1
        bad = self.bad(attempt.job)
        if bad is not None:
            return self.rejects_s, bad
        if self.cap <= 0 and self.passed_s < self.lifted_s:
            self.rejected += 1
            return self.rejects_s, CAPPED
        self.cap -= 1
        return self.took_s, SUCCESS

    def count(self, ref: RunRef, field: str) -> int:
        return int(self.cluster.redis.hget(self.cluster.keys.state(ref), field) or 0)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize(("slots", "rejects_s"), [(1, 0.2), (100, 0.005), (100, 2.0)])
def test_a_cap_that_is_reached_in_mid_run_costs_no_row(
    real_redis: Redis, limit: str, slots: int, rejects_s: float
) -> None:
    world = World(real_redis, LIMITS[limit], 0.3, rejects_s, slots)
    ref = world.cluster.submit(ROWS)
    world.cluster.run_until_finished(ref, limit_s=900)
    assert (world.count(ref, "n:succeeded"), world.count(ref, "n:failed")) == (ROWS, 0)
    assert world.rejected <= 5 + slots + 60


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("cap", [1, 3, 10])
def test_a_cap_among_a_runs_first_calls_costs_no_row(real_redis: Redis, limit: str, cap: int) -> None:
    """Its rejections come after the run's first answer, though their calls started before."""
    world = World(real_redis, LIMITS[limit], 0.3, 0.5, 20)
    world.cap, world.lifted_s = cap, 30.0
    ref = world.cluster.submit(ROWS)
    world.cluster.run_until_finished(ref, limit_s=400)
    assert (world.count(ref, "n:succeeded"), world.count(ref, "n:failed")) == (ROWS, 0)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("rejects_s", [0.005, 2.0])
def test_one_bad_row_fails_alone_after_few_calls(real_redis: Redis, limit: str, rejects_s: float) -> None:
    world = World(real_redis, LIMITS[limit], 0.3, rejects_s, 20)
    world.cap, bad = ROWS, PermanentFailure("unknown field 'colour' in message 3", 400)
    world.bad = lambda job: bad if job == 40 else None
    ref = world.cluster.submit(ROWS)
    world.cluster.run_until_finished(ref, limit_s=200)
    failed = {job for job, result in world.cluster.results(ref).items() if result.state is JobState.FAILED}
    assert failed == {40}
    assert world.calls[40] <= 3


@pytest.mark.parametrize("every", [10, 3, 2])
@pytest.mark.parametrize("slots", [1, 50])
@pytest.mark.parametrize("rejects_s", [0.005, 0.3])
def test_many_bad_rows_cost_few_calls_and_little_time(
    real_redis: Redis, every: int, slots: int, rejects_s: float
) -> None:
    world = World(real_redis, {}, 0.3, rejects_s, slots)
    world.cap, bad = ROWS, PermanentFailure("the image of message 3 is too small", 400)
    world.bad = lambda job: bad if job >= 60 and job % every == 1 else None
    ref = world.cluster.submit(ROWS)
    world.cluster.run_until_finished(ref, limit_s=ROWS * 0.3 / slots + 20)
    assert world.count(ref, "n:failed") == sum(job % every == 1 for job in range(60, ROWS))
    assert sum(world.calls.values()) <= 1.4 * ROWS


@pytest.mark.parametrize("warm", [False, True])
def test_a_run_whose_every_call_is_rejected_with_another_number_ends(real_redis: Redis, warm: bool) -> None:
    """Each row fails by itself, and the lane goes on for others."""
    world = World(real_redis, {}, 0.3, 0.1, 20)
    if warm:
        world.cluster.run_until_finished(world.cluster.submit(40), limit_s=60)
    world.bad = lambda job: PermanentFailure(f"no mood for request {sum(world.calls.values())}", 400)
    ref = world.cluster.submit(100)
    world.cluster.run_until_finished(ref, limit_s=60)
    assert world.count(ref, "n:failed") == 100


def test_a_run_whose_own_parameter_is_wrong_ends_after_five_calls(real_redis: Redis) -> None:
    world = World(real_redis, {}, 0.3, 0.1, 1)
    first = world.cluster.submit(40)
    world.cluster.run_until_finished(first, limit_s=60)
    wrong = PermanentFailure("temperature must be at most 2", 400)
    world.bad = lambda job: wrong
    world.calls.clear()
    second = world.cluster.submit(ROWS, run="r2")
    world.cluster.run_until_finished(second, limit_s=60)
    assert (world.count(second, "n:failed"), sum(world.calls.values())) == (ROWS, 5)


def test_a_cap_that_is_never_lifted_ends_with_max_outage(real_redis: Redis) -> None:
    world = World(real_redis, {}, 0.3, 0.1, 20)
    world.lifted_s = 10**6
    ref = world.cluster.submit(ROWS)
    world.cluster.run_until_finished(ref, limit_s=4000)
    assert (world.count(ref, "n:succeeded"), world.count(ref, "n:failed")) == (CAP, ROWS - CAP)
    errors = {str(result.error) for result in world.cluster.results(ref).values() if result.error}
    assert any("max_outage" in error and "allowance" in error for error in errors)


@settings(
    max_examples=12,
    derandomize=True,
    phases=GENERATED,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    slots=st.integers(1, 60),
    took_s=st.sampled_from([0.05, 0.3, 3.0]),
    rejects_s=st.sampled_from([0.005, 0.3, 3.0]),
    cap=st.integers(100, 200),
    bad_share=st.sampled_from([0.0, 0.05, 0.3]),
    limit=st.sampled_from(sorted(LIMITS)),
)
def test_whatever_the_course_exactly_the_bad_rows_fail(
    real_redis: Redis, slots: int, took_s: float, rejects_s: float, cap: int, bad_share: float, limit: str
) -> None:
    world = World(emptied(real_redis), LIMITS[limit], took_s, rejects_s, slots)
    world.cap, bad = cap, PermanentFailure("unknown field in message 4", 422)
    bads = {job for job in range(ROWS) if (job * 7919) % 1000 < 1000 * bad_share}
    world.bad = lambda job: bad if job in bads else None
    ref = world.cluster.submit(ROWS)
    world.cluster.run_until_finished(ref, limit_s=3000)
    failed = {job for job, result in world.cluster.results(ref).items() if result.state is JobState.FAILED}
    assert failed == bads


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("tail", [6, 50, 120])
def test_rejected_rows_at_a_runs_end_fail_in_seconds_and_cost_few_controls(
    real_redis: Redis, limit: str, tail: int
) -> None:
    """No row is left that would be answered; a control is."""
    world = World(real_redis, LIMITS[limit], 0.3, 0.15, 20)
    world.cap, empty = 10**6, PermanentFailure("text content blocks must be non-empty", 400)
    world.bad = lambda job: empty if job >= ROWS - tail else None
    ref = world.cluster.submit(ROWS)
    world.cluster.run_until_finished(ref, limit_s=200)
    assert (world.count(ref, "n:succeeded"), world.count(ref, "n:failed")) == (ROWS - tail, tail)
    controls = sum(count - 1 for job, count in world.calls.items() if job < ROWS - tail)
    assert controls <= 6
    assert sum(world.calls.values()) <= ROWS + 2 * 20 + 1.2 * tail


@pytest.mark.parametrize("took_s", [0.3, 8.0])
@pytest.mark.parametrize("most_s", [3, 5, 20])
def test_a_control_in_flight_is_awaited_beyond_max_outage(
    real_redis: Redis, took_s: float, most_s: int
) -> None:
    """Calls that started before the circuit opened fail meanwhile: they are no probes."""
    world = World(real_redis, {}, took_s, took_s, 15)
    world.cap, empty = 10**6, PermanentFailure("text content blocks must be non-empty", 400)
    world.bad = lambda job: empty if 15 <= job < 30 else None
    ref = world.cluster.submit(70, bounds={"max_outage": most_s, "max_concurrent": 15})
    world.cluster.run_until_finished(ref, limit_s=400)
    assert (world.count(ref, "n:succeeded"), world.count(ref, "n:failed")) == (55, 15)
    errors = {result.error for result in world.cluster.results(ref).values() if result.error}
    assert errors == {"text content blocks must be non-empty"}


@pytest.mark.parametrize("bad", [10, 40, 90])
def test_a_cap_in_the_words_of_bad_rows_ends_no_more_rows_than_were_bad(real_redis: Redis, bad: int) -> None:
    world = World(real_redis, {}, 0.3, 0.15, 5)
    world.bad = lambda job: CAPPED if 20 <= job < 20 + bad else None
    world.cap = 20 + 50
    ref = world.cluster.submit(ROWS)
    world.cluster.run_until_finished(ref, limit_s=3000)
    assert bad <= world.count(ref, "n:failed") <= 2.2 * bad + 5


@settings(
    max_examples=12,
    derandomize=True,
    phases=GENERATED,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    slots=st.integers(1, 60),
    took_s=st.sampled_from([0.05, 0.3, 3.0]),
    rejects_s=st.sampled_from([0.005, 0.3, 3.0]),
    cap=st.integers(20, 150),
    bads=st.lists(st.tuples(st.integers(10, ROWS), st.integers(1, 120)), max_size=3),
    limit=st.sampled_from(sorted(LIMITS)),
)
def test_whatever_rows_are_bad_in_a_row_exactly_these_fail_beside_a_cap(
    real_redis: Redis,
    slots: int,
    took_s: float,
    rejects_s: float,
    cap: int,
    bads: list[tuple[int, int]],
    limit: str,
) -> None:
    world = World(emptied(real_redis), LIMITS[limit], took_s, rejects_s, slots)
    world.cap, bad = cap, PermanentFailure("unknown field in message 4", 422)
    rows = {job for first, count in bads for job in range(first, min(ROWS, first + count))}
    world.bad = lambda job: bad if job in rows else None
    ref = world.cluster.submit(ROWS)
    world.cluster.run_until_finished(ref, limit_s=3000)
    failed = {job for job, result in world.cluster.results(ref).items() if result.state is JobState.FAILED}
    assert failed == rows
