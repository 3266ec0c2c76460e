"""Two of a run's first calls are witnesses from elsewhere in its queue: no job fails before they end."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.ending import Completion, RecordedJob
from fairlane.model.job import Attempt, Feedback, JobState
from fairlane.model.run import RunRef
from fairlane.store.rejections import ENOUGH_REFUSALS, rejections_in
from fairlane.store.write.permits import Offer
from fairlane.store.write.runs.uncalled_jobs import UncalledJobs
from tests.support.deployment import PLENTY, Deployment, attempts_of, entry, payload

LANE = "sim:fast"
GONE, OTHER = "404 no such model", "400 bad parameter"
JOBS = 60
HOLD_MS = 250


@dataclass(frozen=True, slots=True)
class Failing:
    """The completion of a job that is not called."""

    payload: str = '{"s":"failed"}'
    follow: tuple[RecordedJob, ...] = ()
    session: None = None


def queued(d: Deployment, kinds: int = 1, jobs: int = JOBS) -> RunRef:
    d.lane(LANE)
    ref = d.submit(rows=jobs)
    entries = {LANE: [entry(job, 10, job % kinds) for job in range(jobs)]}
    d.runs.feed(ref, d.epoch, 0, jobs, entries, [], d.now_ms)
    return ref


def take(d: Deployment, ref: RunRef) -> list[Attempt]:
    offers = [Offer(ref, PLENTY, first=ENOUGH_REFUSALS)]
    taken = attempts_of(d.ask(offers, LANE), offers, LANE)
    for attempt in taken:
        assert d.claim(attempt) is not None
    return taken


def end(d: Deployment, attempt: Attempt, refusal: str = "") -> None:
    feedback = Feedback("answered" if refusal else "ok", reason=refusal, refusal=refusal)
    state = JobState.FAILED if refusal else JobState.SUCCEEDED
    call = d.attempts.finish(attempt, "w1", feedback, Completion(state, payload(state)), d.now_ms)
    assert call.run(d.redis) is not None


def fail_first(d: Deployment, ref: RunRef) -> int:
    jobs = UncalledJobs(d.redis, d.keys)
    ((queue, text, _), *_) = jobs.first_queued(ref, LANE, 1)
    return jobs.fail(ref, LANE, queue, text, "refusals", Failing(), d.epoch, d.now_ms)


def six_of_which_the_witnesses_are_out(d: Deployment, ref: RunRef) -> list[Attempt]:
    """Five rejections alike, none of a witness; returns the witnesses."""
    *front, middle, last = take(d, ref)
    d.advance(HOLD_MS)
    for attempt in (*front, *take(d, ref)[:2]):
        end(d, attempt, GONE)
    return [middle, last]


def test_the_last_two_of_five_come_from_the_middle_and_the_end(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    assert [attempt.job for attempt in take(d, queued(d))] == [0, 1, 2, 31, 59]


def test_a_witness_is_of_the_same_model(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    jobs = [attempt.job for attempt in take(d, queued(d, kinds=2))]
    of_one = [job for job in jobs if job % 2 == 0]
    assert of_one[:3] == [0, 2, 4]
    assert of_one[3] in range(30, 40)
    assert of_one[4:] == [58]


def test_a_short_queue_starts_all_its_jobs_once(real_redis: Redis) -> None:
    for jobs in range(1, 6):
        real_redis.flushdb()
        d = Deployment(real_redis)
        assert sorted(attempt.job for attempt in take(d, queued(d, jobs=jobs))) == list(range(jobs))


def test_five_rejections_hold_and_fail_nothing_while_a_witness_is_out(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = queued(d)
    middle, last = six_of_which_the_witnesses_are_out(d, ref)
    assert take(d, ref) == []
    assert rejections_in(d.state(ref)) == ()
    assert fail_first(d, ref) == 0
    end(d, middle, GONE)
    assert fail_first(d, ref) == 0
    d.dirty()
    end(d, last, GONE)
    assert LANE in d.dirty()
    assert [each.words for each in rejections_in(d.state(ref))] == [GONE]
    assert fail_first(d, ref) == 1


def test_the_answer_of_a_witness_and_a_rejection_in_other_words_release_the_run(real_redis: Redis) -> None:
    for refusal in ("", OTHER):
        real_redis.flushdb()
        d = Deployment(real_redis)
        ref = queued(d)
        _, last = six_of_which_the_witnesses_are_out(d, ref)
        d.dirty()
        end(d, last, refusal)
        assert LANE in d.dirty()
        d.advance(1000)
        assert len(take(d, ref)) > 20


def test_a_witness_whose_rejection_decides_nothing_is_called_again_while_others_are_held(
    real_redis: Redis,
) -> None:
    d = Deployment(real_redis)
    ref = queued(d)
    middle, last = six_of_which_the_witnesses_are_out(d, ref)
    d.report(last, Feedback("answered", reason=GONE), done=False)
    (again,) = take(d, ref)
    assert again.job == last.job
    assert fail_first(d, ref) == 0
    end(d, middle, GONE)
    end(d, again, GONE)
    assert fail_first(d, ref) == 1


def test_an_undecided_rejection_is_replaced_by_that_of_the_jobs_next_call(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = queued(d)
    first = take(d, ref)
    for attempt in first:
        d.advance(50)
        d.report(attempt, Feedback("answered", reason=GONE), done=False)
        (again,) = take(d, ref)
        assert again.job == attempt.job
        end(d, again, GONE)
        assert take(d, ref) == []
    assert [each.words for each in rejections_in(d.state(ref))] == [GONE]


def test_state_of_the_previous_version_is_read(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = queued(d)
    real_redis.hset(d.keys.state(ref), f"first:0:{LANE}", f"5:5:{d.now_ms + HOLD_MS}")
    assert take(d, ref) == []
    d.advance(HOLD_MS)
    assert len(take(d, ref)) == ENOUGH_REFUSALS


@pytest.mark.slow
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    acts=st.lists(
        st.tuples(
            st.sampled_from(["take", "wait", "refuse", "refuse", "undecided", "limited", "broken", "lose"]),
            st.integers(0, 500),
        ),
        max_size=40,
    )
)
def test_an_always_rejected_run_fails_and_is_never_stuck(
    real_redis: Redis, acts: list[tuple[str, int]]
) -> None:
    real_redis.flushdb()
    d = Deployment(real_redis)
    ref = queued(d)
    running = take(d, ref)
    for act, number in acts:
        if act == "wait":
            d.advance(number)
        elif act == "take":
            running += take(d, ref)
        elif running:
            attempt = running.pop(number % len(running))
            if act == "refuse":
                end(d, attempt, GONE)
            elif act == "undecided":
                d.report(attempt, Feedback("answered", reason=GONE), done=False)
            elif act == "lose":
                d.recover(attempt, dead_worker="w1", max_attempts=number % 2 + 1)
            else:
                d.defer(attempt, signal="limited" if act == "limited" else "none")
        out = {attempt.job for attempt in running}
        for name, value in d.state(ref).items():
            if name.startswith("first:") and rejections_in(d.state(ref)):
                assert value.count(":") == 3, f"a run fails while witnesses are awaited: {value}, of {out}"
    for _ in range(60):
        running += take(d, ref)
        for attempt in running:
            end(d, attempt, GONE)
        running = []
        d.advance(2000)
        if rejections_in(d.state(ref)):
            break
    left = JOBS - d.count(ref, "jobs_done")
    assert left == 0 or rejections_in(d.state(ref))
    assert left == 0 or fail_first(d, ref) > 0
