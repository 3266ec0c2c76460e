"""LLM tokens are reserved when an attempt starts and trued up when it ends: none appear, none are lost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.job import Attempt, Signal
from fairlane.model.run import RunRef
from fairlane.model.tokens import Estimate, Usage
from tests.support.charges import ChargeModel, charged
from tests.support.deployment import Deployment, entry, permit_burst_ms
from tests.support.redis import emptied

UNIT = 60_000_000
NOT_CHARGED = {"limited", "overloaded"}

# Neither parks the lane nor counts towards its circuit: both would empty the bucket.
signals: st.SearchStrategy[Signal] = st.sampled_from(
    ["ok", "ok", "answered", "limited", "overloaded", "none"]
)
counts = st.none() | st.integers(0, 300)
acts = st.lists(
    st.tuples(
        st.integers(0, 3000),
        st.integers(0, 5),
        signals,
        st.builds(Usage, counts, counts, counts),
        st.booleans(),
    ),
    min_size=5,
    max_size=30,
)
models = st.builds(
    ChargeModel,
    st.sampled_from(["used", "reserved"]),
    st.sampled_from([1.0, 5.0, 1.25, 0.3]) | st.floats(0.01, 100),
    st.sampled_from(["free", "counted"]),
)
rates = st.sampled_from([60, 600, 6_000, 600_000])
AXES = {
    "tokens": "tokens_per_minute",
    "input": "input_tokens_per_minute",
    "output": "output_tokens_per_minute",
}
bounds = st.dictionaries(st.sampled_from(list(AXES)), rates, min_size=1)


class Reference:
    """The provider's bucket, in Python: each charge at its time, its amount known when its call is over."""

    def __init__(self, per_minute: int, burst_seconds: float, now_ms: int) -> None:
        self.pace = per_minute * 1000
        self.full = max(UNIT, self.pace * permit_burst_ms(burst_seconds))
        self.start_ms = now_ms
        self.charges: list[tuple[int, int]] = []

    def charge(self, tokens: int, now_ms: int) -> int:
        """Charge an estimate; returns what `correct` takes."""
        self.charges.append((now_ms, tokens))
        return len(self.charges) - 1

    def correct(self, number: int, tokens: int) -> None:
        self.charges[number] = (self.charges[number][0], tokens)

    def level(self, now_ms: int) -> int:
        """The level that all charges so far have left, had their amounts been known at once."""
        level, at_ms = self.full, self.start_ms
        for time_ms, tokens in self.charges:
            level = min(self.full, level + (time_ms - at_ms) * self.pace) - tokens * UNIT
            at_ms = time_ms
        return min(self.full, level + (now_ms - at_ms) * self.pace)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    bounds=bounds,
    burst=st.sampled_from([0.1, 1.0, 5.0]),
    model=models,
    sizes=st.lists(st.builds(Estimate, *[st.integers(0, 250)] * 3, st.booleans()), min_size=20, max_size=20),
    acts=acts,
)
@pytest.mark.slow
def test_no_level_exceeds_that_of_a_bucket_that_knows_every_amount_in_advance(
    real_redis: Redis,
    bounds: dict[str, int],
    burst: float,
    model: ChargeModel,
    sizes: list[Estimate],
    acts: list[Any],
) -> None:
    d = Deployment(emptied(real_redis))
    limits = {AXES[axis]: per_minute for axis, per_minute in bounds.items()}
    ref = _sized_jobs(d, sizes, exact=True, burst_seconds=burst, **limits, **asdict(model))
    buckets = {axis: Reference(per_minute, burst, d.now_ms) for axis, per_minute in bounds.items()}
    flying: list[tuple[Attempt, int, Estimate]] = []
    lowered: set[str] = set()
    for wait_ms, ended, signal, usage, finish in acts:
        d.advance(wait_ms)
        for permit in d.ask(ref).permits:
            attempt = Attempt(ref.run, ref.team, permit.job, permit.number, "sim:fast")
            reserved = _reserved(d, attempt)
            for axis, bucket in buckets.items():
                amount = amount_on(axis, reserved)
                assert bucket.level(d.now_ms) >= min(amount * UNIT, bucket.full)
                number = bucket.charge(amount, d.now_ms)
            flying.append((attempt, number, reserved))
        for attempt, number, reserved in flying[:ended]:
            d.claim(attempt)
            end = d.finish if finish else d.defer
            assert end(attempt, signal=signal, used=usage) is not None
            unsaid = signal == "answered" and usage.total is None
            final = charged(usage, reserved, model)
            never_sent = signal == "none" and not finish
            if signal in NOT_CHARGED or unsaid or never_sent:
                final = Estimate(0, 0)
            if signal == "limited":  # the bucket that refused it is taken to be empty
                lowered.update(buckets)
            for axis, bucket in buckets.items():
                # What has spilled is remembered up to a full bucket: it pays for as much more use.
                if (amount_on(axis, final) - amount_on(axis, reserved)) * UNIT > bucket.full:
                    lowered.add(axis)
                bucket.correct(number, amount_on(axis, final))
        del flying[:ended]
        state = d.lane_state()
        for axis, bucket in buckets.items():
            level, exact = int(state[f"{axis}_level"]), bucket.level(int(state[f"{axis}_ms"]))
            assert level == exact if axis not in lowered else level <= exact


def amount_on(axis: str, tokens: Estimate) -> int:
    """What a call takes of one axis."""
    return {"tokens": tokens.total, "input": tokens.input, "output": tokens.output}[axis]


def _reserved(d: Deployment, attempt: Attempt) -> Estimate:
    lease = json.loads(d.redis.hget(d.keys.leased, attempt.id) or b"{}")
    return Estimate(**lease["charged"])


@pytest.mark.parametrize(
    ("signal", "used", "back"),
    [("refused", None, 80), ("broken", None, 0), ("broken", 30, 50), ("ok", 30, 50), ("ok", 100, -20)],
)
def test_a_refund_is_the_part_that_the_provider_does_not_charge(
    real_redis: Redis, signal: Signal, used: int | None, back: int
) -> None:
    d = Deployment(real_redis)
    ref = _sized_jobs(d, [80], tokens_per_minute=6000, burst_seconds=1.266)
    attempt = d.start(ref)[0]
    d.defer(attempt, signal=signal, used=used)
    assert int(d.lane_state()["tokens_level"]) == (90 - 80 + back) * UNIT


@pytest.mark.parametrize(("claimed", "back"), [(True, 0), (False, 80)])
def test_a_lapsed_call_is_refunded_only_if_no_worker_has_claimed_it(
    real_redis: Redis, claimed: bool, back: int
) -> None:
    d = Deployment(real_redis)
    ref = _sized_jobs(d, [80], tokens_per_minute=6000, burst_seconds=1.266)
    (attempt,) = d.start(ref) if claimed else d.take(ref)
    d.redis.zadd(d.keys.leases, {attempt.id: d.now_ms})
    assert d.recover(attempt) == 1
    assert int(d.lane_state()["tokens_level"]) == (90 - 80 + back) * UNIT


def test_a_job_larger_than_the_bucket_starts_at_a_full_bucket_and_leaves_a_debt(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _sized_jobs(d, [500, 10], tokens_per_minute=6000, burst_seconds=1.266)
    grant = d.ask(ref)
    assert [permit.entry.tokens for permit in grant.permits] == [Estimate(0, 500)]
    # 90 fit in; 410 are owed, and 10 more are wanted, at 100 a second.
    assert (grant.reason, grant.wait_ms) == ("tokens", 4200)
    d.advance(4199)
    assert not d.ask(ref).permits
    d.advance(1)
    assert len(d.ask(ref).permits) == 1


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    per_minute=st.floats(0.5, 10**7) | st.sampled_from([600, 60_000, 1234.567]),
    burst=st.sampled_from([0.1, 1.0, 30.0]),
    sizes=st.lists(st.integers(1, 5000), min_size=3, max_size=8),
)
def test_the_reported_time_is_the_first_with_enough_tokens(
    real_redis: Redis, per_minute: float, burst: float, sizes: list[int]
) -> None:
    d = Deployment(emptied(real_redis))
    ref = _sized_jobs(d, sizes, tokens_per_minute=per_minute, burst_seconds=burst)
    grant = d.ask(ref)
    while grant.reason:
        assert grant.reason == "tokens"
        d.advance(grant.wait_ms - 1)
        assert not d.ask(ref).permits
        d.advance(1)
        grant = d.ask(ref)
        assert grant.permits


@pytest.mark.parametrize("limit", ["requests_per_minute", "input_tokens_per_minute"])
def test_a_bucket_that_answers_do_not_use_bounds_no_guess(real_redis: Redis, limit: str) -> None:
    d = Deployment(real_redis)
    ref = _sized_jobs(
        d, [Estimate(1, 200, 0, True)], burst_seconds=1.266, output_tokens_per_minute=60_000, **{limit: 600}
    )
    (attempt,) = d.take(ref)
    assert _reserved(d, attempt).output == 200


def test_a_refund_wakes_lanes_that_wait_for_tokens(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _sized_jobs(d, [90, 90], tokens_per_minute=6000, burst_seconds=1.266)
    first = d.start(ref)[0]
    assert d.ask(ref).reason == "tokens"
    d.dirty()
    d.finish(first, used=40)
    assert "sim:fast" in d.dirty()
    d.advance(400)
    assert len(d.ask(ref).permits) == 1


@pytest.mark.parametrize(("signal", "factor"), [("ok", "1.003"), ("answered", None), ("limited", "0.5")])
def test_an_answer_deepens_a_learned_bucket_that_limits_jobs_and_a_429_halves_it(
    real_redis: Redis, signal: Signal, factor: str | None
) -> None:
    d = Deployment(real_redis)
    ref = _sized_jobs(d, [500] * 9, burst_seconds=60)
    d.redis.hset(d.keys.lane("sim:fast"), "output_est", "600000")
    attempts = d.start(ref, 5)
    assert d.ask(ref).reason == "output"
    d.defer(attempts[0], signal=signal, used=500)
    assert d.lane_state().get("output_deep") == factor


def test_amounts_that_were_never_reserved_are_never_refunded(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _sized_jobs(d, [1000, 90], burst_seconds=1.266)
    first = d.start(ref)[0]
    d.lanes.limit("sim:fast", {"tokens_per_minute": 6000})
    d.take(ref)
    level = d.lane_state()["tokens_level"]
    assert level == "0"
    d.finish(first, used=0)
    assert d.lane_state()["tokens_level"] == level


@pytest.mark.parametrize("signal", ["ok", "limited"])
def test_an_answered_probe_cancels_no_debt(real_redis: Redis, signal: Signal) -> None:
    d = Deployment(real_redis)
    ref = _sized_jobs(d, [500, 500, 10], tokens_per_minute=6000, burst_seconds=1.266)
    d.defer(d.start(ref)[0], signal="refused", reason="quota", delay_ms=10**6)
    d.advance(10_000)
    d.lanes.resume("sim:fast", d.now_ms)
    probe = d.start(ref)[0]
    d.defer(probe, signal=signal, used=1000, delay_ms=10**6)
    owed = 0 if signal == "limited" else -(1000 - 90) * UNIT
    assert int(d.lane_state()["tokens_level"]) == owed


def test_draining_empties_every_bucket_but_cancels_no_debt(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _sized_jobs(
        d, [Estimate(2, 3)] * 50, requests_per_minute=600, **dict.fromkeys(AXES.values(), 60_000)
    )
    d.lanes.drain("sim:fast", d.now_ms)
    assert d.ask(ref).reason == "requests"
    levels = ["requests_level", *(f"{axis}_level" for axis in AXES)]
    assert [d.lane_state()[name] for name in levels] == ["0"] * 4
    for name in levels[1:]:
        d.redis.hset(d.keys.lane("sim:fast"), name, str(-1000 * UNIT))
    d.lanes.drain("sim:fast", d.now_ms)
    assert [d.lane_state()[name] for name in levels[1:]] == [str(-1000 * UNIT)] * 3


def _sized_jobs(d: Deployment, sizes: Sequence[int | Estimate], **limits: float | str) -> RunRef:
    """A lane with these limits and a run whose jobs need so many tokens, queued on it."""
    lane = d.lane("sim:fast", **limits)
    ref = d.submit(rows=len(sizes))
    entries = {lane: [entry(job, size) for job, size in enumerate(sizes)]}
    assert d.runs.feed(ref, d.epoch, 0, len(sizes), entries, [], d.now_ms) == 1
    return ref
