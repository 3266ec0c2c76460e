"""A refusal: one cut an epoch, on the refused axis alone, and one call at a time while the lane is shut."""

from __future__ import annotations

import pytest
from redis import Redis

from fairlane.model.job import Attempt, Feedback, Reported
from fairlane.model.run import RunRef
from fairlane.model.tokens import Estimate
from tests.support.deployment import Deployment, entry
from tests.support.hidden_limit import hints

CEILING = {"requests_per_minute": 60_000}
"""What lets fifty calls start at once, and may be lowered."""
LONG_MS = 3_600_000
LEARNED = ("requests_est", "requests_var", "requests_age_ms", "epoch", "sign", "shut", "window", "blocked_ms")
UNIT = 60_000_000


def _limited(
    d: Deployment, attempt: Attempt, exhausted: str | None = None, after_ms: int | None = None
) -> Reported:
    feedback = Feedback(
        "limited", retry_after_ms=after_ms, hints=hints(exhausted=exhausted) if exhausted else None
    )
    reported = d.report(attempt, feedback, done=False)
    assert reported is not None
    return reported


def _learned(d: Deployment) -> dict[str, str]:
    """What refusals change of a lane."""
    return {name: value for name, value in d.lane_state().items() if name in LEARNED}


def _open_again(d: Deployment, ref: RunRef) -> Attempt:
    """Get over the refusals with one call, which is answered. Returns the next call in flight."""
    first = d.start_next(ref)
    d.advance(1000)
    d.finish(first)
    second = d.start_next(ref)
    assert d.lane_state()["shut"] == ""
    return second


def test_fifty_429s_of_one_burst_lower_the_rate_once(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=100, **CEILING)
    burst = d.start(ref, 50)
    news = []
    for attempt in burst:
        d.advance(2)
        news.append(_limited(d, attempt).news)
        if len(news) == 1:
            cut = _learned(d)["requests_est"]
    assert news == ["cut"] + [""] * 49
    assert (d.lane_state()["epoch"], d.lane_state()["requests_est"]) == ("1", cut)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_refusals_of_calls_that_started_together_may_come_in_any_order(
    real_redis: Redis, order: tuple[int, ...]
) -> None:
    """The first call after a 429 is rejected as well: that later ones are heard of first is no opening."""
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=200, **CEILING)
    first, *_ = d.start(ref, 40)
    d.advance(100)
    _limited(d, first)
    learned = _learned(d)["requests_est"]
    again = [d.start_next(ref) for _ in range(4)]
    d.advance(60)
    for place in order:
        d.advance(1)
        _limited(d, again[place])
    state = d.lane_state()
    assert (state["epoch"], state["requests_est"], state["refusals"]) == ("1", learned, "2")


def test_a_refusal_of_an_earlier_epoch_changes_nothing(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=100, **CEILING)
    first, *late = d.start(ref, 5)
    d.advance(20)
    _limited(d, first)
    d.advance(5000)
    _open_again(d, ref)
    for attempt in late:
        d.advance(300)
        before = _learned(d)
        assert _limited(d, attempt).news == ""
        assert _learned(d) == before


@pytest.mark.parametrize("axis", ["requests", "tokens", "input", "output"])
def test_a_429_lowers_only_the_rate_of_its_axis(real_redis: Redis, axis: str) -> None:
    d = Deployment(real_redis)
    limits = {
        "tokens_per_minute": 600_000,
        "input_tokens_per_minute": 600_000,
        "output_tokens_per_minute": 600_000,
    }
    ref = d.queued_lane(jobs=100, tokens=Estimate(10, 10), **CEILING, **limits)
    attempt, *_ = d.start(ref, 20)
    d.advance(1000)
    assert _limited(d, attempt, exhausted=axis).news == "cut"
    state = d.lane_state()
    assert {name for name in ("requests", "tokens", "input", "output") if f"{name}_est" in state} == {axis}
    assert state[f"{axis}_level"] == "0"
    others = {"requests", "tokens", "input", "output"} - {axis}
    assert all(float(state[f"{other}_level"]) > 0 for other in others)


@pytest.mark.parametrize("exhausted", ["day", "concurrency"])
def test_a_429_for_the_day_or_for_concurrency_leaves_the_rate_alone(
    real_redis: Redis, exhausted: str
) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=100, **CEILING)
    attempt, *_ = d.start(ref, 20)
    d.advance(100)
    _limited(d, attempt, exhausted=exhausted)
    assert not {"requests_est", "epoch"} & set(d.lane_state())


def test_429s_for_concurrency_narrow_the_window_once_a_burst(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=100)
    burst = d.start(ref, 20)
    news = [_limited(d, attempt, exhausted="concurrency").news for attempt in burst[10:]]
    assert news == ["cut"] + [""] * 9
    assert d.lane_state()["window"] == "10"
    assert d.ask(ref).reason == "window"


@pytest.mark.parametrize("after_ms", [None, 700])
def test_where_others_have_taken_all_places_a_single_call_waits_longer_each_time(
    real_redis: Redis, after_ms: int | None
) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=100, requests_per_minute=6000)
    waits = []
    for _ in range(8):
        [attempt] = d.start(ref)
        _limited(d, attempt, exhausted="concurrency", after_ms=after_ms)
        grant = d.ask(ref)
        assert (len(grant.permits), grant.reason) == (0, "blocked")
        waits.append(grant.wait_ms)
        d.advance(grant.wait_ms)
    assert waits == ([700] * 8 if after_ms else [100, 200, 400, 800, 1600, 3200, 5000, 5000])


@pytest.mark.parametrize("limits", [{"requests_per_minute": 6000, "exact": True}, {"requests_per_minute": 0}])
def test_an_exact_or_unlimited_rate_is_as_fast_as_before_once_429s_end(
    real_redis: Redis, limits: dict[str, float]
) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=500, **limits)
    for _ in range(8):
        attempt = d.start_next(ref)
        d.advance(20)
        _limited(d, attempt, after_ms=1)
        d.advance(2000)
    for _ in range(2):
        d.finish(d.start_next(ref))
        d.advance(2000)
    assert len(d.take(ref, 90)) == 90


@pytest.mark.parametrize("limits", [{"requests_per_minute": 6000, "exact": True}, {"requests_per_minute": 0}])
def test_no_cut_is_reported_if_none_is_made(real_redis: Redis, limits: dict[str, float]) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=10, **limits)
    assert _limited(d, d.start(ref)[0], after_ms=1).news in ("", "blocked")


def test_an_operators_rate_is_a_ceiling(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=5000, requests_per_minute=600)
    d.redis.hset(d.keys.lane("sim:fast"), "requests_est", 60_000)
    d.take(ref)
    start_ms, taken = d.now_ms, 0
    for _ in range(200):
        d.advance(50)
        taken += len(d.take(ref))
    assert taken == 10 * (d.now_ms - start_ms) / 1000


def test_while_429s_continue_one_call_at_a_time_tests_the_lane_and_the_wait_doubles(
    real_redis: Redis,
) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=1000, **CEILING)
    attempt, *_ = d.start(ref, 30)
    waits = []
    for _ in range(7):
        d.advance(20)
        _limited(d, attempt)
        grant = d.ask(ref)
        assert (grant.permits, grant.reason) == ([], "blocked")
        waits.append(grant.wait_ms)
        d.advance(grant.wait_ms)
        if len(waits) > 1:
            attempt = d.start_next(ref)
            # The next one waits until the provider has been silent for long enough.
            assert d.ask(ref).reason == "refused"
        else:
            attempt = d.start_next(ref)
    assert waits == [100, 200, 400, 800, 1600, 2000, 2000]


def test_a_lane_that_has_opened_again_is_held_by_its_rate_alone(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=1000, **CEILING)
    attempt, *_ = d.start(ref, 30)
    for _ in range(3):
        d.advance(20)
        _limited(d, attempt)
        attempt = d.start_next(ref)
    grant = d.ask(ref)
    assert (grant.reason, grant.wait_ms <= 1000) == ("refused", True)
    d.advance(grant.wait_ms + 1)
    for _ in range(5):
        assert d.ask(ref).reason == "requests"
        d.start_next(ref)


@pytest.mark.parametrize("apart_ms", [17, 21, 33])
def test_the_end_of_a_block_is_reported_to_the_millisecond(real_redis: Redis, apart_ms: int) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=1000, **CEILING)
    attempt, *_ = d.start(ref, 30)
    for _ in range(3):
        d.advance(apart_ms)
        _limited(d, attempt)
        attempt = d.start_next(ref)
    grant = d.ask(ref)
    assert grant.reason == "refused"
    d.advance(grant.wait_ms)
    again = d.ask(ref)
    assert again.reason != "refused" or again.at_ms > d.now_ms


@pytest.mark.parametrize("signal", ["limited", "ok", "overloaded"])
def test_a_retry_after_of_an_hour_is_waited_out_and_fails_no_job(real_redis: Redis, signal: str) -> None:
    d = Deployment(real_redis)
    ref = d.unknown_lane(jobs=100)
    attempt, *_ = d.start(ref, 2)
    d.advance(20)
    feedback = Feedback(signal, retry_after_ms=LONG_MS)  # type: ignore[arg-type]
    assert d.report(attempt, feedback, done=signal == "ok") is not None
    until_ms = d.now_ms + LONG_MS
    grant = d.ask(ref)
    assert (grant.permits, grant.reason, grant.at_ms) == ([], "blocked", until_ms)
    d.advance(LONG_MS - 1)
    assert not d.ask(ref).permits
    d.advance(1)
    d.start_next(ref)
    assert d.now_ms - until_ms <= 1000
    assert d.count(ref, "n:failed") == 0


def test_a_429_cancels_no_token_debt(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    lane = d.lane(tokens_per_minute=6000, burst_seconds=1.266)
    ref = d.submit(rows=2)
    d.runs.feed(ref, d.epoch, 0, 2, {lane: [entry(0, 10), entry(1, 500)]}, [], d.now_ms)
    small = d.start(ref)[0]
    d.advance(1000)
    d.start(ref)
    owed = int(d.lane_state()["tokens_level"])
    assert owed == (90 - 500) * UNIT
    _limited(d, small, exhausted="tokens")
    assert int(d.lane_state()["tokens_level"]) <= owed + 20 * UNIT
