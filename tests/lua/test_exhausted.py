"""429s whose headers show which limit is exhausted: that axis is blamed, and its reported rate is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from redis import Redis

from fairlane.model.job import Attempt, Feedback, Reported
from fairlane.model.tokens import Estimate
from tests.support.deployment import Deployment
from tests.support.hidden_limit import Bucket, HiddenLimit, hints

SECOND_MS = 1000


def _refused(d: Deployment, attempt: Attempt, after_ms: int | None = None, **axes: Any) -> Reported:
    reported = d.report(
        attempt, Feedback("limited", retry_after_ms=after_ms, hints=hints(**axes)), done=False
    )
    assert reported is not None
    return reported


def test_the_axis_with_less_left_than_the_call_takes_is_blamed(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=10, tokens=Estimate(247, 226), requests_per_minute=None)
    (attempt,) = d.start(ref, 1)
    _refused(d, attempt, input=(25_000, 219, None), output=(26_000, 1120, None))
    state = d.lane_state()
    assert "requests_est" not in state
    assert state["input_level"] == "0" != state["output_level"]


def test_an_axis_named_by_the_provider_takes_precedence_over_its_levels(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=10, tokens=Estimate(247, 226), requests_per_minute=None)
    (attempt,) = d.start(ref, 1)
    _refused(d, attempt, input=(25_000, 219, None), output=(26_000, 0, None), exhausted="output")
    state = d.lane_state()
    assert state["output_level"] == "0" != state["input_level"]


def test_429s_at_once_that_show_a_bucket_exhausted_halve_its_depth_once(real_redis: Redis) -> None:
    """Requests limited jobs, and the lane had saved more input than its provider."""
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=50, tokens=Estimate(250, 20), requests_per_minute=6000)
    (first, *others) = d.start(ref, 5)
    full = hints(input=(1_000_000, 900_000, None), output=(1_000_000, 900_000, None))
    d.report(first, Feedback("ok", hints=full), done=True)
    assert "input_deep" not in d.lane_state()
    for attempt in others:
        _refused(d, attempt, input=(1_000_000, 0, None), exhausted="input")
    assert 0.3 < float(d.lane_state()["input_deep"]) < 0.6


def test_a_first_429_that_shows_a_reported_limit_exhausted_keeps_its_rate(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.unknown_lane(jobs=10)
    attempt, *_ = d.start(ref, 2)
    _refused(d, attempt, requests=(600, 0, 1000), exhausted="requests")
    assert float(d.lane_state()["requests_est"]) == pytest.approx(600, rel=0.01)


def test_a_429_before_a_lane_has_reached_its_first_report_keeps_the_reported_rate(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.unknown_lane(jobs=1000)
    first, second, *_ = d.start(ref, 2)
    _refused(d, first, requests=(1200, 0, 1000), exhausted="requests")
    assert float(d.lane_state()["requests_est"]) == pytest.approx(1200, rel=0.01)
    d.defer(second)
    d.advance(2000)
    taken = 0
    for _ in range(100):
        d.advance(100)
        taken += d.pass_through(ref)
    assert taken >= 0.9 * 200


def test_corrections_by_429s_scale_with_their_reported_limit(real_redis: Redis) -> None:
    """Others take half of the limit; then it doubles, and later falls to a tenth."""
    d = Deployment(real_redis)
    ref = d.unknown_lane(jobs=1000)
    (first,) = d.start(ref, 1)
    d.report(first, Feedback("ok", hints=hints(requests=(600, 1, 1000))), done=True)
    for _ in range(4):
        for _ in range(3):
            d.advance(1000)
            d.finish(d.start(ref)[0])
        d.advance(1000)
        (refused,) = d.start(ref, 1)
        _refused(d, refused, 1000, requests=(600, 0, 1000), exhausted="requests")
        d.advance(2000)
        d.finish(d.start(ref)[0])
    d.advance(2000)
    learned = float(d.lane_state()["requests_est"])
    assert learned < 0.8 * 600
    for limit in (1200, 120):
        (answered,) = d.start(ref, 1)
        d.report(answered, Feedback("ok", hints=hints(requests=(limit, 1, 1000))), done=True)
        assert float(d.lane_state()["requests_est"]) == pytest.approx(learned * limit / 600, rel=0.05)
        d.advance(60_000)


def test_a_report_in_another_unit_does_not_change_corrections_by_429s(real_redis: Redis) -> None:
    """A limit of 50 a minute is reported sixtyfold. It rises to 70, and is reported as it is from then on."""
    d = Deployment(real_redis)
    bucket, unit = Bucket(50), 60

    def announced(now_ms: int, admitted: bool) -> Mapping[str, Any]:
        return {"hints": hints(requests=(bucket.per_minute * unit, 1 if admitted else 0, 1000))}

    lane = HiddenLimit(d, d.unknown_lane(jobs=2000), bucket, announced=announced)
    lane.run(300_000)
    bucket.per_minute, unit = 70, 1
    lane.run(60_000)
    assert lane.admitted(d.now_ms - 60_000) >= 0.6 * 50


@dataclass
class Seconds:
    """Windows of a second: a limit a minute of which each holds only whole calls. Its headers are true."""

    per_minute: int
    now_ms: Any
    taken: dict[int, int] = field(default_factory=dict)

    @property
    def _whole(self) -> int:
        return self.per_minute // 60

    def admit(self, now_ms: int, in_flight: int) -> bool:
        second = now_ms // SECOND_MS
        if self.taken.get(second, 0) >= self._whole:
            return False
        self.taken[second] = self.taken.get(second, 0) + 1
        return True

    def announced(self, now_ms: int, admitted: bool) -> Mapping[str, Any]:
        left = self._whole - self.taken.get(now_ms // SECOND_MS, 0) if admitted else 0
        shown = hints(requests=(self.per_minute, left, SECOND_MS - now_ms % SECOND_MS))
        return {"hints": shown} | ({} if admitted else {"retry_after_ms": SECOND_MS})


@pytest.mark.slow
def test_windows_that_hold_whole_calls_do_not_bring_a_lane_far_below_what_they_report(
    real_redis: Redis,
) -> None:
    d = Deployment(real_redis)
    ref = d.unknown_lane(jobs=5000)
    limit = Seconds(1317, lambda: d.now_ms)  # 21 calls each second, not 21.95
    lane = HiddenLimit(d, ref, limit, announced=limit.announced, latency_ms=lambda in_flight: 600)
    lane.run(30_000)
    began_ms = d.now_ms
    lane.run(60_000)
    assert lane.admitted(began_ms) >= 0.9 * 21 * 60
    assert lane.refused(began_ms) <= 0.01 * 21 * 60
