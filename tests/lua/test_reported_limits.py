"""What providers say of their limits: ceilings that move when they do, and what others take of the key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.hints import Hints
from fairlane.model.job import Attempt, Feedback, Reported
from fairlane.model.tokens import Estimate
from tests.support.deployment import Deployment
from tests.support.hidden_limit import Everything, HiddenLimit, hints
from tests.support.redis import emptied

MINUTE_MS = 60_000
UNDER_TOLD = 0.997


def _tell(d: Deployment, attempt: Attempt, said: Hints, signal: str = "ok") -> Reported:
    feedback = Feedback(signal, hints=said)  # type: ignore[arg-type]
    reported = d.report(attempt, feedback, done=signal == "ok")
    assert reported is not None
    return reported


def _started_in(d: Deployment, ref: Any, span_ms: int, step_ms: int = 100) -> int:
    """Permits within a span, after what may have been saved is spent."""
    d.take(ref)
    taken = 0
    for _ in range(span_ms // step_ms):
        d.advance(step_ms)
        taken += d.pass_through(ref)
    return taken


@pytest.mark.parametrize(
    ("axis", "tokens"), [("requests", Estimate(0, 1)), ("tokens", Estimate(1, 0)), ("output", Estimate(0, 1))]
)
def test_a_reported_limit_is_kept(real_redis: Redis, axis: str, tokens: Estimate) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=2000, tokens=tokens, requests_per_minute=None if axis == "requests" else 0)
    _tell(d, d.start(ref)[0], hints(**{axis: (1200, None, None)}))
    assert _started_in(d, ref, 20_000) == pytest.approx(400 * UNDER_TOLD, abs=2)


def test_a_report_lowers_an_operators_limit_and_never_raises_it(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=2000, requests_per_minute=600)
    _tell(d, d.start(ref)[0], hints(requests=(60_000, None, None)))
    assert _started_in(d, ref, 10_000) == pytest.approx(100, abs=1)
    d.advance(1000)
    _tell(d, d.start(ref)[0], hints(requests=(300, None, None)))
    assert _started_in(d, ref, 10_000) == pytest.approx(50, abs=2)
    d.lanes.limit("sim:fast", {"exact": True})
    assert _started_in(d, ref, 10_000) == pytest.approx(100, abs=1)


def test_a_reported_limit_that_moves_drops_what_was_learned(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.unknown_lane(jobs=5000)
    first, second = d.start(ref, 2)
    _tell(d, first, hints(requests=(600, None, None)))
    _tell(d, second, hints(exhausted="requests"), signal="limited")
    assert float(d.lane_state()["requests_est"]) < 600
    d.advance(5000)
    third = d.start(ref)[0]
    _tell(d, third, hints(requests=(603, None, None)))
    assert float(d.lane_state()["requests_est"]) < 600, "a wobble is no move"
    d.advance(5000)
    _tell(d, d.start(ref)[0], hints(requests=(1200, None, None)))
    assert d.lane_state()["requests_est"] == ""
    assert _started_in(d, ref, 10_000) == pytest.approx(200, abs=3)


@pytest.mark.parametrize("times", [2, 4, 12])
@pytest.mark.parametrize(("axis", "each"), [("requests", 1), ("tokens", 10), ("output", 10)])
@pytest.mark.slow
def test_a_reported_limit_that_rises_is_reached_without_a_429(
    real_redis: Redis, axis: str, each: int, times: int
) -> None:
    """An account that is sold more. Nothing has ever rejected the lane, and nothing does now."""
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=20_000, tokens=Estimate(0, 10), requests_per_minute=None)
    limit = 120 * each

    def announced(_now_ms: int, _admitted: bool) -> dict[str, Any]:
        return {"hints": hints(**{axis: (limit, None, None)})}

    world = HiddenLimit(d, ref, Everything(), announced=announced)
    world.run(2 * MINUTE_MS)
    last = d.now_ms
    world.run(MINUTE_MS)
    assert world.admitted(last) <= 1.05 * 120
    limit *= times
    world.run(2 * MINUTE_MS)
    last = d.now_ms
    world.run(MINUTE_MS)
    assert 0.95 * 120 * times <= world.admitted(last) <= 1.05 * 120 * times


@dataclass
class Shared:
    """A provider that tells ``remaining``, with others who use the same key: a bucket, or a fixed window."""

    per_minute: int
    others_per_minute: float
    windowed: bool
    now_ms: Any
    left: float = field(init=False)
    at_ms: int = field(init=False)

    def __post_init__(self) -> None:
        self.left, self.at_ms = self.per_minute, self.now_ms()

    def _pass(self) -> None:
        now = self.now_ms()
        if self.windowed:
            if now // MINUTE_MS > self.at_ms // MINUTE_MS:
                self.left, self.at_ms = self.per_minute, now - now % MINUTE_MS
            self.left -= (now - self.at_ms) * self.others_per_minute / MINUTE_MS
        else:
            earned = (self.per_minute - self.others_per_minute) * (now - self.at_ms) / MINUTE_MS
            self.left = min(self.per_minute, self.left + earned)
        self.at_ms = now

    def admit(self, now_ms: int, in_flight: int) -> bool:
        self._pass()
        if self.left < 1:
            return False
        self.left -= 1
        return True

    def announced(self, now_ms: int, admitted: bool) -> Mapping[str, Any]:
        self._pass()
        reset_ms = MINUTE_MS - now_ms % MINUTE_MS
        if not self.windowed:
            reset_ms = round((self.per_minute - self.left) * MINUTE_MS / self.per_minute)
        return {"hints": hints(requests=(self.per_minute, max(0, int(self.left)), reset_ms))}


@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.slow
def test_calls_of_others_with_the_same_key_are_left_their_part(real_redis: Redis, windowed: bool) -> None:
    d = Deployment(real_redis)
    provider = Shared(300, 120, windowed, lambda: d.now_ms)
    world = HiddenLimit(d, d.unknown_lane(jobs=5000), provider, announced=provider.announced)
    world.run(4 * MINUTE_MS)
    assert "shared" in world.news
    last = d.now_ms
    world.run(2 * MINUTE_MS)
    # What is left of 300 is 180; being found out costs a little, and so does caution.
    assert 2 * 150 <= world.admitted(last) <= 2 * 187
    assert world.refused(last) <= 10


@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.slow
def test_no_part_is_left_to_others_if_the_key_is_not_shared(real_redis: Redis, windowed: bool) -> None:
    d = Deployment(real_redis)
    provider = Shared(300, 0, windowed, lambda: d.now_ms)
    world = HiddenLimit(d, d.unknown_lane(jobs=5000), provider, announced=provider.announced)
    world.run(2 * MINUTE_MS)
    last = d.now_ms
    world.run(2 * MINUTE_MS)
    assert world.admitted(last) >= 2 * 300 * 0.97
    assert world.refused(last) <= 4
    assert "shared" not in world.news


def test_a_full_bucket_shows_no_other_users(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.unknown_lane(jobs=100)
    for _ in range(20):
        attempt = d.start(ref)[0]
        # It is always full again: others may be there or not.
        assert _tell(d, attempt, hints(requests=(600, 599, 100))).news != "shared"
        d.advance(5000)
    assert float(d.lane_state().get("requests_foreign") or 0) == 0


def test_the_first_reported_remainder_may_be_spent(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.unknown_lane(jobs=500)
    _tell(d, d.start(ref)[0], hints(requests=(600, 8, 100)))
    assert len(d.take(ref)) <= 8


def test_what_a_bucket_has_saved_is_spent_besides_the_rate_until_a_429(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.unknown_lane(jobs=5000)
    shown = hints(requests=(600, 590, 1000))
    _tell(d, d.start(ref)[0], shown)
    assert _started_in(d, ref, 10_000) == pytest.approx(200, abs=15)
    assert d.lanes.view("sim:fast").axes["requests"].allowed == pytest.approx(600 * UNDER_TOLD)
    d.advance(1000)
    _tell(d, d.start(ref)[0], hints(requests=(600, 490, 11_000)), "limited")
    d.advance(1000)
    _tell(d, d.start(ref)[0], shown)
    assert _started_in(d, ref, 10_000) <= 101
    d.advance(3_600_000)
    _tell(d, d.start(ref)[0], shown)
    assert _started_in(d, ref, 10_000) >= 150


@pytest.mark.parametrize(("lacks", "reset_ms"), [(50, 0), (90, 1_000)])
def test_a_date_that_was_true_when_a_long_call_started_is_a_buckets_reset(
    real_redis: Redis, lacks: int, reset_ms: int
) -> None:
    """Of 600 a minute, 50 are missing: five seconds, or 90: nine. The call took eight seconds."""
    d = Deployment(real_redis)
    ref = d.unknown_lane(jobs=5000)
    call = d.start(ref)[0]
    d.advance(8_000)
    _tell(d, call, hints(requests=(600, 600 - lacks, reset_ms)))
    assert _started_in(d, ref, 10_000) >= 150


def test_what_a_bucket_has_saved_raises_no_configured_limit(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=2000, requests_per_minute=600)
    _tell(d, d.start(ref)[0], hints(requests=(600, 590, 1000)))
    assert _started_in(d, ref, 10_000) <= 100


@pytest.mark.parametrize(("left", "least", "most"), [(45, 38, 44), (12, 5, 11), (2_950, 0, 12)])
def test_a_first_report_that_shows_less_than_a_second_is_spent_at_once(
    real_redis: Redis, left: int, least: int, most: int
) -> None:
    """Of 3,000 a minute, a bucket of a second holds 50: 45 are left of it. 2,950 are a minute's view."""
    d = Deployment(real_redis)
    ref = d.unknown_lane(jobs=500)
    first = d.start(ref)[0]
    d.pass_through(ref)
    d.advance(300)
    _tell(d, first, hints(requests=(3_000, left, 100)))
    assert least <= sum(d.claim(attempt) is not None for attempt in d.take(ref)) <= most


def test_a_lane_whose_headers_show_its_bucket_is_soon_at_its_rate(real_redis: Redis) -> None:
    """The 429 that would say that another limit binds comes within the burst, so the lift begins halfway."""
    d = Deployment(real_redis)
    ref = d.unknown_lane(jobs=500)
    _tell(d, d.start(ref)[0], hints(requests=(3_000, 30, 400)))
    d.pass_through(ref)
    assert _started_in(d, ref, 300, step_ms=50) >= 12


def test_a_reported_limit_a_day_is_counted_until_the_day_ends(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=50)
    first, second = d.start(ref, 2)
    _tell(d, first, hints(day=(10, 8, None)))
    grant = d.ask(ref)
    assert (len(grant.permits), grant.reason) == (8, "day")
    ends_ms = d.now_ms + 3_600_000
    _tell(d, second, hints(day=(10, 0, 3_600_000), exhausted="day"), signal="limited")
    assert "requests_est" not in d.lane_state()
    assert (d.ask(ref).reason, d.ask(ref).at_ms) == ("day", ends_ms)
    d.advance(3_600_000)
    assert len(d.take(ref)) == 10


def test_a_reported_concurrency_limit_bounds_calls_in_flight(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=50)
    _tell(d, d.start(ref)[0], hints(concurrency=(4, None, None)))
    grant = d.ask(ref)
    assert (len(grant.permits), grant.reason) == (4, "window")


@pytest.mark.parametrize("axis", ["requests", "tokens"])
@pytest.mark.parametrize("then", ["opens", "is refused again"])
def test_a_reported_limit_may_move_while_the_lane_is_shut(real_redis: Redis, axis: str, then: str) -> None:
    d = Deployment(real_redis)
    ref = d.unknown_lane(jobs=1000)
    first, second, third = [*d.start(ref, 2), d.start_next(ref)]
    _tell(d, third, hints(**{axis: (1200, None, None)}))
    _tell(d, first, hints(exhausted=axis), signal="limited")
    _tell(d, second, hints(**{axis: (2400, None, None)}))
    probe = d.start_next(ref)
    if then == "is refused again":
        _tell(d, probe, hints(exhausted=axis), signal="limited")
    for _ in range(5):
        probe = d.start_next(ref)
        d.advance(500)
        _tell(d, probe, hints(**{axis: (2400, None, None)}))


HOUR_MS = 3_600_000


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    reported=st.integers(30, 6000),
    left=st.floats(-0.2, 1),
    since_ms=st.sampled_from([0, 500, 5000, 60_000]),
    fullest=st.floats(0, 1),
    refills=st.sampled_from([1, 1, 1, 0]),
    flat_ms=st.sampled_from([None, None, 1000, HOUR_MS - 1, HOUR_MS]),
    foreign=st.sampled_from([0, 0, 0.01, 0.04, 0.3, 0.8, 0.99]),
    seen_ms=st.sampled_from([0, 60_000, 120_000, 300_000]),
)
def test_a_reported_limit_leaves_what_others_do_not_take_and_what_its_bucket_has_saved(
    real_redis: Redis,
    reported: int,
    left: float,
    since_ms: int,
    fullest: float,
    refills: int,
    flat_ms: int | None,
    foreign: float,
    seen_ms: int,
) -> None:
    """Decisions 0147 and 0168. Shares of the limit: what is left, was ever left, and others take."""
    d, used = Deployment(emptied(real_redis)), 1000
    ref = d.unknown_lane(jobs=1)
    known = {
        "reported": reported, "free_to": used + left * reported, "free_ms": d.now_ms - since_ms,
        "fullest": fullest * reported, "refills": refills, "foreign": foreign * reported,
        "foreign_ms": d.now_ms - seen_ms, "flat_ms": "" if flat_ms is None else d.now_ms - flat_ms,
    }  # fmt: skip
    fields = {f"requests_{name}": str(value) for name, value in known.items() if value != ""}
    d.redis.hset(d.keys.lane("sim:fast"), mapping={"granted": str(used), **fields})
    d.ask(ref)
    others = foreign * 0.5 ** max(0, seen_ms / 60_000 - 1)
    if others >= 0.03:
        rate = reported * min(0.997, max(0.05, 0.997 - others, 0.5 * left))
    else:
        spare = min(fullest, left + since_ms / 60_000) * reported
        saved = refills and (flat_ms is None or flat_ms >= HOUR_MS)
        in_ten_s = 6 * max(0.0, spare - 1 - reported * 100 / 60_000) if saved else 0.0
        rate = 0.997 * reported + min(reported, in_ten_s)
    assert int(d.lane_state()["requests_pace"]) / 1000 == pytest.approx(rate, rel=1e-4, abs=0.0011)
