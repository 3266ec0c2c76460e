"""429s that last although a lane waits: the next try meets fewer calls in flight; a short wait doubles."""

from __future__ import annotations

from redis import Redis

from fairlane.model.job import Attempt, Feedback
from fairlane.model.run import RunRef
from fairlane.model.tokens import Usage
from tests.support.deployment import Deployment

ASKED_MS, LONGEST_MS, PATIENCE_MS = 500, 30_000, 30_000


def _start(d: Deployment, ref: RunRef) -> Attempt:
    """The next call that the lane lets start within a second."""
    return d.start_next(ref, tries=100, step_ms=10)


def _reject(d: Deployment, attempt: Attempt, wait_ms: int | None = ASKED_MS) -> None:
    assert d.report(attempt, Feedback("limited", Usage(), wait_ms), done=False) is not None


def test_a_wait_that_proves_too_short_doubles_up_to_a_bound(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.unknown_lane()
    waits = []
    for _ in range(9):
        _reject(d, _start(d, ref))
        grant = d.ask(ref)
        assert grant.reason == "blocked"
        waits.append(grant.wait_ms)
        d.advance(grant.wait_ms)
    assert waits == [min(LONGEST_MS, ASKED_MS * 2**n) for n in range(9)]


def test_where_a_wait_did_not_help_the_next_try_meets_one_call_fewer(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.unknown_lane()
    first = _start(d, ref)
    for _ in range(2):
        _reject(d, _start(d, ref))
        d.advance(d.ask(ref).wait_ms)
    grant = d.ask(ref)
    assert (grant.permits, grant.reason, grant.window) == ([], "window", 1)
    assert d.report(first, Feedback("ok", Usage(10, 10)), done=True) is not None
    _start(d, ref)


def test_a_single_long_call_does_not_hold_a_rejected_lane(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.unknown_lane()
    _start(d, ref)  # it takes longer than this test
    for _ in range(2):
        _reject(d, _start(d, ref))
        d.advance(d.ask(ref).wait_ms)
    assert d.ask(ref).reason == "window"
    d.advance(PATIENCE_MS + 1)
    _start(d, ref)
