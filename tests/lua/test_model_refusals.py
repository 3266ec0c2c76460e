"""Five equal rejections of a run's first calls to a model hold its jobs for it, and no others."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.ending import Completion, RecordedJob
from fairlane.model.job import Attempt, Feedback, JobState
from fairlane.model.run import RunRef, RunState
from fairlane.store.rejections import ENOUGH_REFUSALS, rejections_in
from fairlane.store.write.runs.uncalled_jobs import UncalledJobs
from tests.support.deployment import Deployment, entry, payload

LANE = "sim:fast"
GONE = "404 no such model"
MODELS = 3
JOBS = 20


@dataclass(slots=True)
class Model:
    """What the rule says of one call kind: the oracle of the property."""

    answered: bool = False
    refusals: list[str] = field(default_factory=list)

    @property
    def held(self) -> bool:
        return not self.answered and len(self.refusals) >= ENOUGH_REFUSALS

    def learn(self, refusal: str) -> None:
        if self.answered:
            return
        if refusal and (not self.refusals or refusal == self.refusals[0]):
            self.refusals.append(refusal)
        elif not refusal or not self.held:
            self.answered, self.refusals = True, []


@dataclass(frozen=True, slots=True)
class Failing:
    """The completion of a job that is not called."""

    payload: str = '{"s":"failed"}'
    follow: tuple[RecordedJob, ...] = ()
    session: None = None


def queued(d: Deployment, kinds: list[int]) -> RunRef:
    """A run whose jobs on one lane are of these call kinds."""
    d.lane(LANE)
    ref = d.submit(rows=len(kinds))
    entries = {LANE: [entry(job, 10, kind) for job, kind in enumerate(kinds)]}
    d.runs.feed(ref, d.epoch, 0, len(kinds), entries, [], d.now_ms)
    return ref


def end(d: Deployment, attempt: Attempt, refusal: str = "") -> None:
    feedback = Feedback("answered" if refusal else "ok", reason=refusal, refusal=refusal)
    state = JobState.FAILED if refusal else JobState.SUCCEEDED
    call = d.attempts.finish(attempt, "w1", feedback, Completion(state, payload(state)), d.now_ms)
    assert call.run(d.redis) is not None


def refuse(d: Deployment, ref: RunRef, count: int, refusal: str = GONE) -> None:
    for attempt in d.start(ref, count):
        end(d, attempt, refusal)


def held(d: Deployment, ref: RunRef) -> set[int]:
    return {each.kind for each in rejections_in(d.state(ref))}


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kinds=st.lists(st.integers(0, MODELS - 1), min_size=JOBS, max_size=JOBS),
    acts=st.lists(
        st.tuples(
            st.sampled_from(["take", "end", "end", "end", "limited", "lose", "resume"]),
            st.integers(0, 20),
            st.sampled_from([GONE, GONE, GONE, "400 bad parameter", ""]),
        ),
        max_size=60,
    ),
)
def test_exactly_the_models_that_rejected_the_first_calls_alike_are_held(
    real_redis: Redis, kinds: list[int], acts: list[tuple[str, int, str]]
) -> None:
    real_redis.flushdb()
    d = Deployment(real_redis)
    ref = queued(d, kinds)
    models = {kind: Model() for kind in range(MODELS)}
    running: list[Attempt] = []
    for act, number, refusal in acts:
        if act == "take":
            taken = d.take(ref, number % 4 + 1)
            assert not [each for each in taken if models[kinds[each.job]].held]
            for attempt in taken:
                assert d.claim(attempt) is not None
            running += taken
        elif act == "resume":
            some = any(model.refusals for model in models.values())
            assert d.runs.resume(ref, "ann", d.epoch, d.now_ms) is (some and d.count(ref, "jobs_done") < JOBS)
            for model in models.values():
                model.refusals = []
        elif running:
            attempt = running.pop(number % len(running))
            if act == "end":
                refusal = refusal if kinds[attempt.job] else GONE
                models[kinds[attempt.job]].learn(refusal)
                end(d, attempt, refusal)
            elif act == "limited":
                d.defer(attempt)
            else:
                d.recover(attempt, dead_worker="w1", max_attempts=99)
        assert held(d, ref) == {kind for kind, model in models.items() if model.held}
    free = [job for job, kind in enumerate(kinds) if not models[kind].held]
    for attempt in running:
        end(d, attempt)
        models[kinds[attempt.job]].learn("")
    for _ in range(3):
        d.advance(2000)
        for attempt in d.take(ref):
            assert not models[kinds[attempt.job]].held
            d.claim(attempt)
            end(d, attempt)
            models[kinds[attempt.job]].learn("")
    queues = d.list(d.keys.hot(ref, LANE)) + d.list(d.keys.fresh(ref, LANE))
    left = {int(text.split(":")[0]) for text in queues}
    assert not left & set(free)
    assert all(models[kinds[job]].held for job in left)


def test_four_equal_refusals_hold_nothing_and_the_fifth_does(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = queued(d, [0] * 10)
    refuse(d, ref, 4)
    assert held(d, ref) == set()
    refuse(d, ref, 1)
    assert d.take(ref) == []
    (delayed,) = d.ask(ref).delayed
    assert (delayed.bound, delayed.until_ms) == ("request_refused", 0)
    assert [(each.lane, each.words) for each in rejections_in(d.state(ref))] == [(LANE, GONE)]


def test_after_one_success_a_model_is_never_held(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = queued(d, [0] * 20)
    refuse(d, ref, 4)
    end(d, d.start(ref)[0])
    refuse(d, ref, 10)
    assert held(d, ref) == set()


def test_jobs_of_another_model_start_before_held_ones(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = queued(d, [0] * 5 + [0] * 3 + [1] * 2)
    refuse(d, ref, 5)
    assert [attempt.job for attempt in d.take(ref)] == [8, 9]


def test_an_answer_to_a_call_in_flight_releases_and_wakes_the_lane(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = queued(d, [0] * 10)
    (late,) = d.start(ref)
    refuse(d, ref, 5)
    assert d.take(ref) == []
    d.dirty()
    end(d, late)
    assert LANE in d.dirty()
    assert len(d.take(ref)) == 4


def test_resuming_tries_five_more(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = queued(d, [0] * 20)
    refuse(d, ref, 5)
    d.dirty()
    assert d.runs.resume(ref, "ann", d.epoch, d.now_ms)
    assert d.dirty() == {LANE}
    refuse(d, ref, 5)
    assert d.take(ref) == []


def test_only_held_jobs_fail_without_a_call(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref, jobs = queued(d, [0] * 7), UncalledJobs(real_redis, d.keys)

    def fail() -> int:
        ((queue, text, _), *_) = jobs.first_queued(ref, LANE, 1)
        return jobs.fail(ref, LANE, queue, text, "refusals", Failing(), d.epoch, d.now_ms)

    assert fail() == 0
    refuse(d, ref, 5)
    assert [fail(), fail()] == [1, 2]
    assert d.state(ref)["state"] == RunState.COMPLETED
    assert d.count(ref, "n:failed") == 7
    assert json.loads(Failing().payload)["s"] == "failed"


def test_a_parameter_that_is_left_out_from_now_on_decides_nothing(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = queued(d, [0] * JOBS)
    unsupported = Feedback("answered", reason="temperature is not supported")
    for attempt in d.start(ref, 2 * ENOUGH_REFUSALS):  # as many as would hold the model, and no answer either
        assert d.report(attempt, unsupported, done=False) is not None
    assert not held(d, ref)
    refuse(d, ref, ENOUGH_REFUSALS, "400 n is not supported")
    assert held(d, ref) == {0}
    assert d.take(ref) == []
