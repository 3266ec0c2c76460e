"""What calls use is learned from their first answers on, by run and call kind, and by lane for new runs."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.job import Attempt
from fairlane.model.run import RunRef
from fairlane.model.tokens import Estimate, Usage
from tests.support.deployment import Deployment, entry
from tests.support.redis import emptied

JOBS = 600
PLENTY = 60_000_000


def _run(d: Deployment, run: str, kinds: list[int], **limits: float | str) -> RunRef:
    """A run whose calls are of these kinds in turn, each estimated at 100 tokens of input and of output."""
    lane = d.lane("sim:fast", **({"tokens_per_minute": PLENTY} | limits))
    ref = d.submit(run=run, rows=JOBS)
    entries = {lane: [entry(job, Estimate(100, 100), kinds[job % len(kinds)]) for job in range(JOBS)]}
    assert d.runs.feed(ref, d.epoch, 0, JOBS, entries, [], d.now_ms) == 1
    return ref


def _learned(d: Deployment, ref: RunRef, kind: int) -> tuple[int, float, float]:
    """How many answers are known, their mean length, and the mean multiple of the estimated prompt."""
    values = [float(each) for each in d.state(ref).get(f"tokens:{kind}", "0 0 0 0 0 0 0").split()]
    return int(values[0]), values[1], values[6]


def _charged(d: Deployment, attempt: Attempt) -> Estimate:
    return Estimate(**(d.lease(attempt) or {})["charged"])


def test_two_models_of_a_run_on_one_lane_do_not_disturb_each_other(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _run(d, "r1", kinds=[0, 1])
    for job in range(200):
        d.finish(d.start(ref)[0], used=Usage(100, 20 if job % 2 == 0 else 90))
        d.advance(20)
    short, long = (_charged(d, attempt).output for attempt in d.take(ref)[:2])
    assert (short, long) == (pytest.approx(20, abs=3), pytest.approx(90, abs=3))


def test_two_runs_on_one_lane_do_not_disturb_each_other(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    brief, long = _run(d, "r1", kinds=[0]), _run(d, "r2", kinds=[0])
    for _ in range(100):
        d.finish(d.start(brief)[0], used=Usage(100, 1))
        d.finish(d.start(long)[0], used=Usage(100, 100))
        d.advance(20)
    assert _learned(d, brief, 0)[1] == pytest.approx(1)
    assert _learned(d, long, 0)[1] == pytest.approx(100)


def test_the_first_answer_corrects_what_the_next_call_is_charged(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _run(d, "r1", kinds=[0])
    first = d.start(ref)[0]
    assert _charged(d, first) == Estimate(100, 100)
    d.finish(first, used=Usage(150, 20))
    assert _charged(d, d.start(ref)[0]) == Estimate(150, 20)


def test_a_new_run_starts_from_what_the_lane_has_seen(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    old = _run(d, "r1", kinds=[0])
    for _ in range(20):
        d.finish(d.start(old)[0], used=Usage(200, 30))
    new = _run(d, "r2", kinds=[0])
    first = d.start(new)[0]
    assert _charged(d, first) == Estimate(200, 30)
    for _ in range(40):
        d.finish(first, used=Usage(100, 90))
        first = d.start(new)[0]
    assert _charged(d, first).output > 80


def test_only_a_few_calls_start_before_a_length_is_known(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    lane = d.lane("sim:fast", tokens_per_minute=1_000_000, burst_seconds=60)
    ref = d.submit(rows=100)
    entries = {lane: [entry(job, Estimate(100, 1024, guessed=True)) for job in range(100)]}
    assert d.runs.feed(ref, d.epoch, 0, 100, entries, [], d.now_ms) == 1
    handful = d.take(ref)
    assert len(handful) == 8
    d.dirty()
    for left, attempt in reversed([*enumerate(handful)]):
        d.claim(attempt)
        d.finish(attempt, used=Usage(100, 150))
        assert d.lane_state()["guesses"] == str(left)
    assert "sim:fast" in d.dirty()
    assert len(d.take(ref)) > 80


@pytest.mark.parametrize(("guessed", "expected"), [(True, 3000), (False, 1024)])
def test_a_stated_limit_bounds_the_expected_answer_and_a_guess_does_not(
    real_redis: Redis, guessed: bool, expected: int
) -> None:
    d = Deployment(real_redis)
    lane = d.lane("sim:fast", tokens_per_minute=10_000_000, burst_seconds=60)
    ref = d.submit(rows=20)
    entries = {lane: [entry(job, Estimate(100, 1024, guessed=guessed)) for job in range(20)]}
    assert d.runs.feed(ref, d.epoch, 0, 20, entries, [], d.now_ms) == 1
    for _ in range(10):
        d.finish(d.start(ref)[0], used=Usage(100, 3000))
    assert _charged(d, d.start(ref)[0]).output == expected


@pytest.mark.parametrize("used", [40, 200, 380, 900])
def test_the_input_is_learned_and_may_exceed_its_estimate(real_redis: Redis, used: int) -> None:
    d = Deployment(real_redis)
    ref = _run(d, "r1", kinds=[0])
    for _ in range(20):
        d.finish(d.start(ref)[0], used=Usage(used, 100))
        d.advance(100)
    assert _learned(d, ref, 0)[2] == pytest.approx(used / 100)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(0, 100), min_size=1, max_size=60))
def test_the_expected_length_is_the_mean_of_the_answers(real_redis: Redis, sizes: list[int]) -> None:
    d = Deployment(emptied(real_redis))
    ref = _run(d, "r1", kinds=[0])
    for size in sizes:
        d.finish(d.start(ref)[0], used=Usage(100, size))
    count, mean, _ = _learned(d, ref, 0)
    assert (count, mean) == (len(sizes), pytest.approx(sum(sizes) / len(sizes), abs=0.01))


def test_tokens_from_a_free_cache_do_not_count_as_expected_input(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _run(d, "r1", kinds=[0])
    d.finish(d.start(ref)[0], used=Usage(150, 100, cached_tokens=80))
    assert _learned(d, ref, 0)[2] == pytest.approx(0.7)
    d.lanes.limit("sim:fast", {"cache_reads": "counted"})
    d.finish(d.start(ref)[0], used=Usage(150, 100, cached_tokens=80))
    assert _learned(d, ref, 0)[2] == pytest.approx(1.1)


@pytest.mark.parametrize(("used", "taken"), [(Usage(60, 10), 60 + 500), (Usage(60, 120), 60 + 600)])
def test_where_reservations_are_charged_no_length_is_learned_and_no_output_refunded(
    real_redis: Redis, used: Usage, taken: int
) -> None:
    d = Deployment(real_redis)
    ref = _run(d, "r1", kinds=[0], charge="reserved", output_factor=5)
    d.finish(d.start(ref)[0], used=used)
    full = PLENTY * 1000 * 900
    assert int(d.lane_state()["tokens_level"]) == full - taken * 60_000_000
    assert _learned(d, ref, 0)[0] == 0


def test_where_reservations_are_charged_unsent_calls_are_refunded_in_full(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _run(d, "r1", kinds=[0], charge="reserved")
    attempt = d.take(ref, 1)[0]
    before = int(d.lane_state()["tokens_level"])
    d.advance(15_000)
    assert d.recover(attempt) == 1
    assert int(d.lane_state()["tokens_level"]) == PLENTY * 1000 * 900 > before


def test_a_falling_expected_length_wakes_lanes_that_wait_for_tokens(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _run(d, "r1", kinds=[0], tokens_per_minute=12_000)
    first = d.start(ref)[0]
    assert d.ask(ref).reason == "tokens"
    d.dirty()
    d.finish(first, used=Usage(100, 100))
    assert "sim:fast" in d.dirty()
