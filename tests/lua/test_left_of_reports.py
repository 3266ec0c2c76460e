"""What answers show is left of a reported limit: a lane slows down before a 429, and uses what there is."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from redis import Redis

from fairlane.model.hints import Hints
from fairlane.model.job import Attempt, Lesson, Usage
from fairlane.model.run import RunRef
from fairlane.model.tokens import Estimate
from tests.support.deployment import Deployment
from tests.support.hidden_limit import HiddenLimit, hints

SECOND_MS = 1000
LIMIT = 600


def _lane(d: Deployment, jobs: int = 5000, tokens: Estimate | None = None) -> RunRef:
    return d.queued_lane(jobs=jobs, tokens=tokens or Estimate(0, 1), requests_per_minute=None)


def _next(d: Deployment, ref: RunRef) -> Attempt:
    """The next attempt, as soon as the lane grants one."""
    for _ in range(1000):
        grant = d.ask(ref, count=1)
        if grant.permits:
            permit = grant.permits[0]
            attempt = Attempt(ref.run, ref.team, permit.job, permit.number, "sim:fast")
            assert d.claim(attempt)
            return attempt
        d.advance(max(1, (grant.at_ms or d.now_ms + 100) - d.now_ms))
    raise AssertionError("the lane grants nothing")


def _answered(d: Deployment, ref: RunRef, said: Hints, calls: int = 1) -> None:
    for _ in range(calls):
        attempt = _next(d, ref)
        d.ask(ref)  # the lane waits for its rate while the call is in flight
        d.advance(50)
        assert d.report(attempt, Lesson("ok", hints=said), done=True)


def _refused(d: Deployment, ref: RunRef, said: Hints) -> None:
    attempt = _next(d, ref)
    d.advance(50)
    assert d.report(attempt, Lesson("limited", hints=said), done=False)


def _learned(d: Deployment, axis: str = "requests") -> float:
    return float(d.lane_state()[f"{axis}_est"])


def _lowered_by_429s(d: Deployment, ref: RunRef) -> float:
    """Two 429s that show the limit exhausted, with a few answers after each; the estimate that follows."""
    for _ in range(2):
        _answered(d, ref, hints(requests=(LIMIT, 5, None)), 6)
        d.advance(SECOND_MS)
        _refused(d, ref, hints(requests=(LIMIT, 0, None)))
    _answered(d, ref, hints(requests=(LIMIT, 1, None)), 3)
    learned = _learned(d)
    assert 0.3 * LIMIT < learned < 0.95 * LIMIT
    return learned


def test_answers_that_show_much_left_end_what_429s_have_lowered(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _lane(d)
    _lowered_by_429s(d, ref)
    _answered(d, ref, hints(requests=(LIMIT, 5, 100)), 12)
    assert d.lane_state()["requests_est"] == ""


@pytest.mark.parametrize("least", [0, 1])
def test_a_window_that_is_nearly_used_up_at_its_end_shows_no_room(real_redis: Redis, least: int) -> None:
    d = Deployment(real_redis)
    ref = _lane(d)
    learned = _lowered_by_429s(d, ref)
    for left, reset_ms in ((8, 1000), (6, 800), (4, 600), (2, 400), (least, 200)) * 4:
        _answered(d, ref, hints(requests=(LIMIT, left, reset_ms)))
    assert _learned(d) <= learned * 1.01


def test_429s_that_show_nothing_exhausted_are_not_undone_by_what_is_left(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _lane(d)
    said = hints(requests=(LIMIT, 500, 100))  # as headers of a minute show
    _answered(d, ref, said, 6)
    _refused(d, ref, said)
    _answered(d, ref, said, 12)
    assert _learned(d) > 0


def test_what_429s_have_taught_of_a_report_is_a_share_of_it(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _lane(d)
    learned = _lowered_by_429s(d, ref)
    _answered(d, ref, hints(requests=(LIMIT * 0.9, 0, 100)))
    assert _learned(d) == pytest.approx(0.9 * learned, rel=0.01)


def test_a_429_lowers_the_rate_by_what_was_missing_for_the_call(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _lane(d, tokens=Estimate(700, 1))
    exhausted, nearly = (hints(input=(60_000, left, None)) for left in (0, 690))
    _answered(d, ref, hints(input=(60_000, 700, None)))
    _refused(d, ref, exhausted)
    _answered(d, ref, hints(input=(60_000, 700, None)), 8)
    before = _learned(d, "input")
    _refused(d, ref, nearly)
    assert _learned(d, "input") == pytest.approx(0.97 * before, rel=0.01)


@dataclass
class Sliding:
    """A sliding window of a second that holds whole calls. Its headers are true."""

    per_minute: int
    taken: deque[int] = field(default_factory=deque)

    def _left(self, now_ms: int) -> int:
        while self.taken and self.taken[0] <= now_ms - SECOND_MS:
            self.taken.popleft()
        return self.per_minute // 60 - len(self.taken)

    def admit(self, now_ms: int, in_flight: int) -> bool:
        admitted = self._left(now_ms) > 0
        if admitted:
            self.taken.append(now_ms)
        return admitted

    def announced(self, now_ms: int, admitted: bool) -> Mapping[str, Any]:
        left = self._left(now_ms)
        shown = hints(
            requests=(self.per_minute, left, self.taken[-1] + SECOND_MS - now_ms if self.taken else 0)
        )
        return {"hints": shown} | ({} if admitted else {"retry_after_ms": SECOND_MS})


def test_a_lane_that_sees_nothing_left_slows_down_before_it_is_refused(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    limit = Sliding(2148)  # 35 calls in any second, not 35.8
    lane = HiddenLimit(d, d.unknown_lane(jobs=5000), limit, announced=limit.announced)
    lane.run(10 * SECOND_MS)
    since_ms = d.now_ms
    lane.run(30 * SECOND_MS)
    assert lane.refused(since_ms) <= 1
    assert lane.admitted(since_ms) >= 0.9 * 35 * 30


def test_what_is_left_alone_lowers_a_rate_by_a_tenth_at_most(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _lane(d)
    _answered(d, ref, hints(requests=(LIMIT, 10, 1000)))
    _answered(d, ref, hints(requests=(LIMIT, 0, 1000)), 100)
    assert _learned(d) == pytest.approx(0.9 * LIMIT, rel=0.01)


def test_what_is_left_lowers_no_rate_that_is_configured(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=500, tokens=Estimate(0, 1), requests_per_minute=LIMIT)
    _answered(d, ref, hints(requests=(LIMIT, 10, 1000)))
    _answered(d, ref, hints(requests=(LIMIT, 0, 1000)), 50)
    assert d.lane_state().get("requests_est", "") == ""


def test_a_reported_limit_of_tokens_lifts_requests_of_which_none_is_reported(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _lane(d, tokens=Estimate(100, 100))
    attempt = _next(d, ref)
    said = hints(tokens=(1_200_000, 100_000, 100))  # 6,000 such calls a minute
    assert d.report(attempt, Lesson("ok", Usage(100, 100), hints=said), done=True)
    for _ in range(6):
        d.advance(100)
        taken = len(d.take(ref))
    assert taken == 10, "in the last 100 ms"
