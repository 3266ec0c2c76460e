"""What calls use of their estimates is learned: output by run and kind, input by lane."""

from __future__ import annotations

import pytest
from redis import Redis

from fairlane.job import Usage
from fairlane.store.keys import RunRef
from fairlane.tokens import Estimate
from tests.support.deployment import Deployment, entry

JOBS = 600
PLENTY = 60_000_000


def _run(d: Deployment, run: str, kinds: list[int], **limits: float | str) -> RunRef:
    """A run whose calls are of these kinds in turn, each estimated at 100 tokens of input and of output."""
    lane = d.lane("sim:fast", **({"tokens_per_minute": PLENTY} | limits))
    ref = d.submit(run=run, rows=JOBS)
    entries = {lane: [entry(job, Estimate(100, 100), kinds[job % len(kinds)]) for job in range(JOBS)]}
    assert d.runs.feed(ref, d.epoch, 0, JOBS, entries, [], d.now_ms) == 1
    return ref


def _share(d: Deployment, ref: RunRef, kind: int) -> float:
    return float(d.state(ref).get(f"share:{kind}", 1))


def _input_share(d: Deployment) -> float:
    return float(d.lane_state().get("input_share", 1))


def test_two_models_of_a_run_on_one_lane_do_not_disturb_each_other(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _run(d, "r1", kinds=[0, 1])
    for job in range(JOBS - 2):
        d.finish(d.start(ref)[0], used=Usage(100, 20 if job % 2 == 0 else 90))
        d.advance(20)
    assert _share(d, ref, 0) == pytest.approx(0.2, abs=0.06)
    assert _share(d, ref, 1) == pytest.approx(0.9, abs=0.06)
    charged = [(d.lease(attempt) or {})["charged"] for attempt in d.take(ref)]
    first, second = ([each["input"], each["output"]] for each in charged)  # type: ignore[index]
    assert first[1] < 60 < 85 < second[1]
    assert first[0] == second[0] == pytest.approx(100, abs=6)


def test_two_runs_on_one_lane_do_not_disturb_each_other(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    brief, long = _run(d, "r1", kinds=[0]), _run(d, "r2", kinds=[0])
    for _ in range(100):
        d.finish(d.start(brief)[0], used=Usage(100, 1))
        d.finish(d.start(long)[0], used=Usage(100, 100))
        d.advance(20)
    assert _share(d, brief, 0) < 0.4
    assert _share(d, long, 0) > 0.99


@pytest.mark.parametrize(("used", "share"), [(40, 0.4), (200, 2.0), (380, 3.8), (900, 4.0)])
def test_the_input_is_learned_by_lane_and_may_exceed_its_estimate(
    real_redis: Redis, used: int, share: float
) -> None:
    d = Deployment(real_redis)
    ref = _run(d, "r1", kinds=[0])
    for _ in range(200):
        d.finish(d.start(ref)[0], used=Usage(used, 100))
        d.advance(100)
    assert _input_share(d) == pytest.approx(share, abs=0.06)


def test_what_is_read_from_a_free_cache_is_not_learned_as_input(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _run(d, "r1", kinds=[0])
    d.finish(d.start(ref)[0], used=Usage(150, 100, cached_tokens=80))
    assert _input_share(d) < 1
    d.lanes.limit("sim:fast", {"cache_reads": "counted"})
    d.finish(d.start(ref)[0], used=Usage(150, 100, cached_tokens=80))
    assert _input_share(d) > 1


@pytest.mark.parametrize(("used", "taken"), [(Usage(60, 10), 60 + 500), (Usage(60, 120), 60 + 600)])
def test_where_reservations_are_charged_nothing_is_learned_and_no_output_comes_back(
    real_redis: Redis, used: Usage, taken: int
) -> None:
    d = Deployment(real_redis)
    ref = _run(d, "r1", kinds=[0], charge="reserved", output_factor=5)
    d.finish(d.start(ref)[0], used=used)
    full = PLENTY * 1000 * 900
    assert int(d.lane_state()["tokens_level"]) == full - taken * 60_000_000
    assert (_share(d, ref, 0), _input_share(d)) == (1, 1)


def test_what_was_never_sent_comes_back_whole_where_reservations_are_charged(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _run(d, "r1", kinds=[0], charge="reserved")
    attempt = d.take(ref, 1)[0]
    before = int(d.lane_state()["tokens_level"])
    d.advance(15_000)
    assert d.recover(attempt) == 1
    assert int(d.lane_state()["tokens_level"]) == PLENTY * 1000 * 900 > before


def test_a_lane_without_a_token_limit_learns_no_shares(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _run(d, "r1", kinds=[0], tokens_per_minute=0)
    d.finish(d.start(ref)[0], used=Usage(1, 1))
    assert "share:0" not in d.state(ref)
    assert "input_share" not in d.lane_state()


def test_a_share_that_falls_wakes_whoever_waits_for_tokens(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = _run(d, "r1", kinds=[0], tokens_per_minute=12_000)
    first = d.start(ref)[0]
    assert d.ask(ref).reason == "tokens"
    d.dirty()
    d.finish(first, used=Usage(100, 100))
    assert "sim:fast" in d.dirty()
