"""Few of a run's first calls to a model start until one has an answer; time alone lets any number start."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.ending import Completion
from fairlane.model.job import Attempt, Feedback, JobState
from fairlane.model.run import RunRef
from fairlane.store.rejections import rejections_in
from fairlane.store.write.permits import Grant, Offer
from tests.support.deployment import PLENTY, Deployment, attempts_of, entry, payload

LANE, OTHER = "sim:fast", "sim:slow"
FIRST, HOLD_MS, HOLD_MOST_MS, DOUBLED_MS, DOUBLINGS = 5, 250, 1000, 40, 12
OPEN_MS = HOLD_MS + DOUBLED_MS * DOUBLINGS
GONE = "404 no such model"
JOBS = 400


def queued(d: Deployment, run: str = "r1", lane: str = LANE, kinds: int = 1) -> RunRef:
    d.lane(lane)
    ref = d.submit(run=run, rows=JOBS)
    entries = {lane: [entry(job, 10, job % kinds) for job in range(JOBS)]}
    d.runs.feed(ref, d.epoch, 0, JOBS, entries, [], d.now_ms)
    return ref


def ask(d: Deployment, ref: RunRef, count: int = PLENTY, lane: str = LANE) -> Grant:
    return d.ask([Offer(ref, count, first=FIRST)], lane)


def take(d: Deployment, ref: RunRef, count: int = PLENTY, lane: str = LANE) -> list[Attempt]:
    taken = attempts_of(ask(d, ref, count, lane), [Offer(ref, count)], lane)
    for attempt in taken:
        assert d.claim(attempt) is not None
    return taken


def end(d: Deployment, attempt: Attempt, refusal: str = "") -> None:
    feedback = Feedback("answered" if refusal else "ok", reason=refusal, refusal=refusal)
    state = JobState.FAILED if refusal else JobState.SUCCEEDED
    assert (
        d.attempts.finish(attempt, "w1", feedback, Completion(state, payload(state)), d.now_ms).run(d.redis)
        is not None
    )


def most_after(ms: int) -> int:
    """How many calls may have started so long after the first one, without an answer."""
    return FIRST if ms < HOLD_MS else FIRST * 2 ** ((ms - HOLD_MS) // DOUBLED_MS + 1)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    acts=st.lists(
        st.tuples(
            st.sampled_from(["take", "take", "wait", "wait", "end", "refuse", "limited", "lose", "resume"]),
            st.integers(0, 200),
        ),
        max_size=40,
    )
)
def test_no_more_start_than_time_allows_until_one_is_answered(
    real_redis: Redis, acts: list[tuple[str, int]]
) -> None:
    real_redis.flushdb()
    d = Deployment(real_redis)
    ref, running = queued(d), list[Attempt]()
    started, began_ms, refusals, answered = 0, 0, 0, False
    for act, number in acts:
        if act == "wait":
            d.advance(number)
        elif act == "take":
            taken = take(d, ref, number + 1)
            running += taken
            began_ms = began_ms if started else d.now_ms
            started += len(taken)
            if not answered and started:
                assert started <= most_after(d.now_ms - began_ms)
            if answered and d.list(d.keys.fresh(ref, LANE)):
                assert taken
        elif act == "resume":
            if d.runs.resume(ref, "ann", d.epoch, d.now_ms):
                started, refusals = 0, 0
        elif running:
            attempt = running.pop(number % len(running))
            if act in ("end", "refuse"):
                refusals += act == "refuse"
                answered = answered or act == "end"
                end(d, attempt, GONE if act == "refuse" else "")
            elif act == "limited":
                d.defer(attempt)
            else:
                d.recover(attempt, dead_worker="w1", max_attempts=99)
    if answered:
        assert not [field for field in d.state(ref) if field.startswith("first:")]
    if not answered and not rejections_in(d.state(ref)):
        take(d, ref)
        d.advance(HOLD_MOST_MS * 2 + OPEN_MS)
        left = len(d.list(d.keys.fresh(ref, LANE))) + len(d.list(d.keys.hot(ref, LANE)))
        assert len(take(d, ref)) == left


def test_a_wrong_request_costs_five_calls_on_a_lane_without_a_limit(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = queued(d)
    first = take(d, ref)
    assert len(first) == FIRST
    (delayed,) = ask(d, ref).delayed
    assert (delayed.bound, delayed.until_ms) == ("first_calls", d.now_ms + HOLD_MS)
    for attempt in first:
        d.advance(60)
        end(d, attempt, GONE)
        assert take(d, ref) == []
    d.advance(OPEN_MS)
    assert take(d, ref) == []
    assert [each.words for each in rejections_in(d.state(ref))] == [GONE]


def test_the_first_answer_wakes_the_lane_and_lets_any_number_start(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = queued(d)
    first = take(d, ref)
    assert take(d, ref) == []
    d.dirty()
    end(d, first[0])
    assert LANE in d.dirty()
    assert len(take(d, ref)) == JOBS - FIRST


def test_without_any_answer_the_number_doubles_and_then_is_any(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref, started = queued(d), 0
    assert len(take(d, ref)) == FIRST
    d.advance(HOLD_MS - 1)
    assert take(d, ref) == []
    d.advance(1)
    for _ in range(3):
        started += len(take(d, ref))
        d.advance(DOUBLED_MS)
    assert started == FIRST * 7
    d.advance(OPEN_MS)
    assert len(take(d, ref)) == JOBS - 8 * FIRST


def test_a_rejection_holds_the_others_for_as_long_as_it_took(real_redis: Redis) -> None:
    """The five start at once: who is rejected first shows when the others end."""
    d = Deployment(real_redis)
    ref = queued(d)
    first = take(d, ref)
    d.advance(HOLD_MS + 20)
    assert len(take(d, ref)) == FIRST
    end(d, first[0], GONE)
    d.advance(HOLD_MS)
    assert take(d, ref) == []
    d.advance(OPEN_MS)
    assert len(take(d, ref)) == JOBS - 2 * FIRST


def test_a_lane_remembers_how_long_its_rejections_take(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    for attempt in take(d, ref := queued(d)):
        d.advance(160)
        end(d, attempt, GONE)
    assert take(d, ref) == []
    later = queued(d, "r2")
    assert len(take(d, later)) == FIRST
    d.advance(HOLD_MS + 100)
    assert take(d, later) == []
    d.advance(HOLD_MOST_MS)
    assert len(take(d, later)) > 0


def test_each_model_has_its_own_first_calls_and_an_answer_of_one_opens_only_it(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = queued(d, kinds=2)
    kinds = [attempt.job % 2 for attempt in take(d, ref)]
    assert kinds.count(0) <= FIRST
    assert kinds.count(1) <= FIRST


@pytest.mark.parametrize("refusals", [0, 4])
def test_a_resumed_run_tries_five_again(real_redis: Redis, refusals: int) -> None:
    d = Deployment(real_redis)
    ref = queued(d)
    first = take(d, ref)
    for attempt in first if refusals == 0 else first[:refusals]:
        end(d, attempt, GONE)
    assert d.runs.resume(ref, "ann", d.epoch, d.now_ms)
    assert len(take(d, ref)) == FIRST
