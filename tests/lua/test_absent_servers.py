"""A proxy in place of an API is a server error where the lane has answered before, else the wrong address.

Proxies such as Traefik answer a 404 of their own while the server behind them restarts.
"""

from __future__ import annotations

import pytest
from redis import Redis

from fairlane.model.ending import Completion
from fairlane.model.job import Attempt, Claim, Feedback, JobState, Reported
from fairlane.model.run import RunRef
from tests.support.deployment import Deployment, payload

THRESHOLD = 5
"""Failures, started apart, that open a circuit."""

MAX_ATTEMPTS, SECOND_MS = 3, 1000
LANE, WORDS = "sim:fast", "404 page not found"


def absent(d: Deployment, attempt: Attempt) -> Reported:
    reported = d.defer(attempt, signal="absent", reason=WORDS, cost="absent", max_attempts=MAX_ATTEMPTS)
    assert reported is not None
    return reported


def answering_lane(d: Deployment, jobs: int = 100) -> RunRef:
    """A lane that has answered a call."""
    ref = d.queued_lane(jobs=jobs)
    d.finish(d.start_next(ref))
    d.advance(SECOND_MS)
    return ref


def claim(d: Deployment, attempt: Attempt) -> Claim:
    found = d.claim(attempt)
    assert found is not None
    return found


def test_a_lane_that_never_answered_has_the_wrong_address_and_each_call_costs_an_attempt(
    real_redis: Redis,
) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=1)

    for _ in range(MAX_ATTEMPTS - 1):
        assert not absent(d, d.start_next(ref)).exhausted
    assert absent(d, d.start_next(ref)).exhausted == MAX_ATTEMPTS
    assert d.lane_state(LANE).get("circuit", "closed") == "closed"


def test_a_server_that_restarts_opens_the_circuit_and_costs_no_attempt(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = answering_lane(d)

    news = [absent(d, d.start_next(ref)).news for _ in range(THRESHOLD)]
    assert news[-1] == "open"

    d.finish(d.start_next(ref))
    claims = [claim(d, attempt) for attempt in d.take(ref)]
    assert claims
    assert {(each.attempts, each.unproven) for each in claims} == {(0, 0)}


def test_a_path_that_is_missing_beside_others_costs_attempts(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = answering_lane(d)
    missing, other = d.start(ref, 2)

    absent(d, missing)
    d.finish(other)

    assert d.lane_state(LANE).get("circuit", "closed") == "closed"
    claims = [claim(d, attempt) for attempt in d.take(ref) if attempt.job == missing.job]
    assert [each.attempts + each.unproven for each in claims] in ([1], [])


@pytest.mark.parametrize(("answered_before", "counts"), [(False, True), (True, False)])
def test_only_the_wrong_address_is_a_rejection_of_the_model(
    real_redis: Redis, answered_before: bool, counts: bool
) -> None:
    d = Deployment(real_redis)
    if answered_before:
        answering_lane(d, jobs=1)
    ref = d.queued_lane(run="r2")
    feedback = Feedback("absent", reason=WORDS, refusal=WORDS)
    failed = JobState.FAILED
    call = d.attempts.finish(d.start_next(ref), "w1", feedback, Completion(failed, payload(failed)), d.now_ms)
    assert call.run(d.redis) is not None
    assert any(field.startswith("rejected:") for field in d.state(ref)) is counts
