"""Each axis holds a lane by itself: requests, all tokens, input, output, and the requests of a day."""

from __future__ import annotations

import pytest
from redis import Redis

from fairlane.model.run import RunRef
from fairlane.model.tokens import Entry, Estimate, Usage
from tests.support.deployment import BURST_S, LEASE_MS, Deployment, entry

UNIT = 60_000_000
DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("limits", "granted", "reason", "again_ms"),
    [
        # What 0.9 seconds earn goes at once; a job has 30 tokens of input and 10 of output.
        ({"input_tokens_per_minute": 6000}, 3, "input", 300),
        ({"output_tokens_per_minute": 6000}, 9, "output", 100),
        ({"tokens_per_minute": 6000}, 2, "tokens", 400),
        ({"input_tokens_per_minute": 6000, "output_tokens_per_minute": 6000}, 3, "input", 300),
        # A job that is larger than the bucket starts while it is full.
        ({"input_tokens_per_minute": 6000, "output_tokens_per_minute": 600}, 1, "output", 1000),
        ({"requests_per_minute": 600, "output_tokens_per_minute": 1200}, 1, "output", 500),
        # In a bucket of one call, calls are 20 ms further apart.
        ({"requests_per_minute": 60, "tokens_per_minute": 60_000}, 1, "requests", 1021),
    ],
)
def test_the_axis_that_takes_longest_holds_the_lane(
    real_redis: Redis, limits: dict[str, float], granted: int, reason: str, again_ms: int
) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=50, tokens=Estimate(30, 10), **limits)
    grant = d.ask(ref)
    assert (len(grant.permits), grant.reason) == (granted, reason)
    for _ in range(3):
        d.advance(grant.wait_ms - 1)
        assert not d.ask(ref).permits
        d.advance(1)
        grant = d.ask(ref)
        assert (len(grant.permits), grant.reason, grant.wait_ms) == (1, reason, again_ms)


def test_jobs_of_different_shape_are_held_by_different_axes(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _jobs(
        d,
        [Estimate(80, 1), Estimate(1, 80), Estimate(40, 1), Estimate(1, 60)],
        input_tokens_per_minute=6000,
        output_tokens_per_minute=6000,
    )
    grant = d.ask(ref)
    assert (len(grant.permits), grant.reason, grant.wait_ms) == (2, "input", 310)
    d.advance(310)
    grant = d.ask(ref)
    assert (len(grant.permits), grant.reason, grant.wait_ms) == (1, "output", 210)


def test_a_refund_on_one_axis_does_not_change_the_other(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    limits = {"input_tokens_per_minute": 6000, "output_tokens_per_minute": 6000}
    ref = d.queued_lane(jobs=5, tokens=Estimate(60, 50), **limits)
    first = d.start(ref)[0]
    d.finish(first, used=Usage(70, 20))
    state = d.lane_state()
    assert (int(state["input_level"]), int(state["output_level"])) == (20 * UNIT, 70 * UNIT)


def test_a_refund_wakes_lanes_that_wait_for_its_axis(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    limits = {"input_tokens_per_minute": 6000, "output_tokens_per_minute": 6000}
    ref = d.queued_lane(jobs=5, tokens=Estimate(60, 10), **limits)
    first = d.start(ref)[0]
    assert d.ask(ref).reason == "input"
    d.dirty()
    d.finish(first, used=Usage(10, 10))
    assert "sim:fast" in d.dirty()
    assert d.take(ref)


@pytest.mark.parametrize("where", ["requests", "tokens", "input", "output", "day"])
def test_an_estimate_lowers_a_stated_rate_unless_that_is_exact(real_redis: Redis, where: str) -> None:
    d = Deployment(real_redis)
    names = {"requests": "requests_per_minute", "tokens": "tokens_per_minute", "day": "requests_per_day"}
    name = names.get(where, f"{where}_tokens_per_minute")
    # 600 a minute are 9 at once, and a quarter of a second of what is learned; a day's limit counts whole.
    stated, learned = (9, 4) if where == "day" else (600, 480)
    few = 4 if where == "day" else 2
    ref = d.queued_lane(jobs=50, tokens=Estimate(1, 0) if where != "output" else Estimate(0, 1))
    d.redis.hset(d.keys.lane("sim:fast"), "day_rate" if where == "day" else f"{where}_est", learned)
    d.lanes.limit("sim:fast", {name: stated, "burst_seconds": BURST_S})
    assert len(d.take(ref)) == few
    axis = d.lanes.view("sim:fast").axes[where]
    assert (axis.configured, axis.learned, axis.allowed) == (stated, learned, learned)
    assert axis.source == ("headers" if where == "day" else "starting")
    _forget_use(d, where)
    d.lanes.limit("sim:fast", {"exact": True})
    assert len(d.take(ref)) == 9
    assert d.lanes.view("sim:fast").axes[where].allowed == axis.configured
    _forget_use(d, where)
    d.lanes.limit("sim:fast", {"exact": None, name: None})
    later = 3 if where in ("tokens", "input") else few  # a learned bucket holds three calls of the usual size
    assert len(d.take(ref)) == later
    d.lanes.limit("sim:fast", {name: 0})
    assert len(d.take(ref)) == 50 - few - 9 - later


def test_a_lane_resumes_after_the_day_ends(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=10, requests_per_day=4)
    midnight = (d.now_ms // DAY_MS + 1) * DAY_MS
    assert len(d.take(ref, 3)) == 3
    grant = d.ask(ref)
    assert (len(grant.permits), grant.reason, grant.at_ms) == (1, "day", midnight)
    d.advance(midnight - 1 - d.now_ms)
    assert (d.ask(ref).permits, d.ask(ref).reason) == ([], "day")
    d.advance(1)
    grant = d.ask(ref)
    assert (len(grant.permits), grant.reason, grant.at_ms) == (4, "day", midnight + DAY_MS)
    # A day without a call ends like any other.
    d.advance(3 * DAY_MS + 5)
    assert (len(d.take(ref)), d.lane_state()["day_until_ms"]) == (2, str(midnight + 4 * DAY_MS))


def test_a_day_ends_when_the_provider_says_so_and_every_24_hours_after(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=10, requests_per_day=2)
    d.take(ref)
    ends = d.now_ms + 5000
    d.redis.hset(d.keys.lane("sim:fast"), "day_until_ms", ends)
    assert (d.ask(ref).reason, d.ask(ref).at_ms) == ("day", ends)
    d.advance(5000)
    grant = d.ask(ref)
    assert (len(grant.permits), grant.reason, grant.at_ms) == (2, "day", ends + DAY_MS)


def test_a_limit_a_day_counts_calls_from_before_it_was_configured(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=10)
    d.take(ref, 3)
    d.lanes.limit("sim:fast", {"requests_per_day": 5})
    assert len(d.take(ref)) == 2
    view = d.lanes.view("sim:fast", d.now_ms)
    assert (view.axes["day"].level, view.reason) == (0, "day")


def test_a_requeued_job_is_charged_as_much_as_before(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _jobs(d, [Estimate(7, 8)] * 3, kind=5)
    hot, text = d.keys.hot(ref, "sim:fast"), "{}:7:8:5"
    first, second, third = d.start(ref, 3)
    d.defer(first)
    assert d.list(hot) == [text.format(0)]
    d.defer(second, delay_ms=10)
    d.advance(LEASE_MS)
    d.promote()
    d.recover(third)
    assert d.list(hot) == [text.format(2), text.format(0), text.format(1)]
    assert [permit.entry for permit in d.ask(ref).permits] == [
        Entry(job, Estimate(7, 8), 5) for job in (2, 0, 1)
    ]


def _jobs(d: Deployment, sizes: list[Estimate], kind: int = 0, **limits: float) -> RunRef:
    """A run with jobs of these sizes on a lane."""
    lane = d.lane("sim:fast", **limits)
    ref = d.submit(rows=len(sizes))
    entries = {lane: [entry(job, size, kind) for job, size in enumerate(sizes)]}
    assert d.runs.feed(ref, d.epoch, 0, len(sizes), entries, [], d.now_ms) == 1
    return ref


def _forget_use(d: Deployment, axis: str) -> None:
    """As if nothing had been taken yet: a bucket is full, a day is new."""
    d.redis.hdel(d.keys.lane("sim:fast"), f"{axis}_level", f"{axis}_ms", "day_until_ms")
