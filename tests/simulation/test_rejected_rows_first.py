"""Rows at a run's head that are rejected alike fail alone; a wrong request still costs few calls."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.job import Attempt, JobState
from fairlane.model.outcome import Outcome, PermanentFailure, Success, UnsupportedParameter
from fairlane.model.tokens import Usage
from fairlane.store.rejections import ENOUGH_REFUSALS
from tests.support.scheduling import Cluster
from tests.support.stand_ins import FakeWorker, Provider

LANE, SLOTS, ROWS = "sim:fast", 400, 200
EMPTY = PermanentFailure("messages: text content blocks must be non-empty", 400)
GONE = PermanentFailure("model fsat does not exist", 404)
LIMITS: dict[str, dict[str, float | None]] = {
    "no limit": {},
    "an unknown limit": {"requests_per_minute": None},
    "500 a second": {"requests_per_minute": 30_000},
}


def cluster(redis: Redis, provider: Provider, limit: str) -> Cluster:
    return Cluster(
        redis,
        provider=provider,
        workers=[FakeWorker("w1", SLOTS)],
        lanes={LANE: LIMITS[limit]},
        bounds={"first_calls": ENOUGH_REFUSALS},
    )


def rejecting(rows: set[int], rejects_s: float, took_s: float) -> Provider:
    def provider(attempt: Attempt) -> tuple[float, Outcome]:
        if attempt.job in rows:
            return rejects_s, EMPTY
        return took_s, Success("yes", Usage(10, 5))

    return provider


def failed(world: Cluster) -> set[int]:
    ref = world.submit(ROWS)
    world.run_until_finished(ref)
    return {item for item, result in world.results(ref).items() if result.state is not JobState.SUCCEEDED}


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("took_s", [0.3, 3.0, 30.0])
def test_five_rejected_rows_at_the_head_fail_alone(real_redis: Redis, limit: str, took_s: float) -> None:
    rows = set(range(5))
    assert failed(cluster(real_redis, rejecting(rows, 0.15, took_s), limit)) == rows


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    limit=st.sampled_from(sorted(LIMITS)),
    head=st.integers(0, 60),
    tail=st.integers(0, 90),
    rejects_s=st.floats(0.01, 3),
    took_s=st.floats(0.01, 40),
)
def test_no_row_that_its_provider_takes_fails_since_others_are_rejected(
    real_redis: Redis, limit: str, head: int, tail: int, rejects_s: float, took_s: float
) -> None:
    """Many rejected rows in a row may open the circuit, so not all have ended by then.

    Half of the 128 rows that are queued at first stand behind the head, so a witness is a good one.
    """
    real_redis.flushdb()
    rows = set(range(head)) | set(range(ROWS - tail, ROWS))
    world = cluster(real_redis, rejecting(rows, rejects_s, took_s), limit)
    ref = world.submit(ROWS)
    world.run_for(60)
    states = {item: result.state for item, result in world.results(ref).items()}
    assert {item for item, state in states.items() if state is not JobState.SUCCEEDED} <= rows
    assert JobState.SUCCEEDED in states.values()


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("rejects_s", [0.05, 0.1, 0.2])
def test_a_wrong_model_of_calls_with_a_form_of_fairlanes_costs_ten(
    real_redis: Redis, limit: str, rejects_s: float
) -> None:
    """The first call of each job has the form, and its rejection may be the form's."""
    calls: Counter[int] = Counter()

    def provider(attempt: Attempt) -> tuple[float, Outcome]:
        calls[attempt.job] += 1
        if calls[attempt.job] == 1:
            assert GONE.status is not None
            return rejects_s, UnsupportedParameter(GONE.message, GONE.status, None, None, "f", failure=GONE)
        return rejects_s, GONE

    assert len(failed(cluster(real_redis, provider, limit))) == ROWS
    assert calls.total() == 2 * ENOUGH_REFUSALS


@pytest.mark.parametrize("head", [23, 60])
def test_many_rejected_rows_at_the_head_delay_the_others_by_seconds(real_redis: Redis, head: int) -> None:
    """They open the circuit, and its probes are rows from elsewhere."""
    world = cluster(real_redis, rejecting(set(range(head)), 0.15, 0.5), "an unknown limit")
    ref = world.submit(ROWS)
    world.run_for(60)
    states = Counter(result.state for result in world.results(ref).values())
    assert states == {JobState.FAILED: head, JobState.SUCCEEDED: ROWS - head}
