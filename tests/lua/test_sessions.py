"""A session's evaluations become ready exactly once, after the last of its items, whatever the order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.ending import Completion, ReadyJob, RecordedJob, SessionCompletion
from fairlane.model.evaluators import Judge
from fairlane.model.job import Attempt, Feedback, JobState
from fairlane.model.results import JudgeResult
from fairlane.model.run import Plan, RunRef, RunSpec
from fairlane.model.sessions import SessionMembership, session_job, session_of_job
from fairlane.model.tokens import Entry
from fairlane.pipeline.completion import session_completion_without_row
from tests.support.conservation import Books
from tests.support.deployment import LEASE_MS, SPENT, Deployment, entry, make_spec, payload
from tests.support.redis import emptied

pytestmark = pytest.mark.usefixtures("no_keys_left")

TASKS, JUDGE, SESSIONS = "sim:fast", "sim:judge", ("sim:session", "sim:judge")
thorough = settings(
    max_examples=30,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=set(Phase) - {Phase.explain},
)


class Play:
    """A run whose items end as a test says, with a model of what its sessions should have come to."""

    def __init__(
        self,
        redis: Redis,
        of_row: Sequence[int],
        repetitions: int = 1,
        judges: int = 0,
        session_judges: int = 1,
    ) -> None:
        self.d = Deployment(emptied(redis))
        for lane in (TASKS, JUDGE, SESSIONS[0]):
            self.d.lane(lane)
        self.of_row, self.size = of_row, {number: of_row.count(number) for number in of_row}
        base = make_spec("search", "r1", len(of_row), judges, self.d.now_ms)
        level: dict[str, Any] = {"level": "session", "template": "{{ session }}", "choices": {"yes": 1.0}}
        wholes = [Judge(name=f"whole{n}", model=SESSIONS[n], **level) for n in range(session_judges)]
        self.spec: RunSpec = base.model_copy(
            update={
                "repetitions": repetitions,
                "evaluators": (*base.evaluators, *wholes),
                "session_field": "s",
                "sessions": len(self.size),
            }
        )
        self.plan = Plan(
            spec=self.spec, eval_lanes=(JUDGE,) * judges, session_lanes=SESSIONS[:session_judges]
        )
        self.ref = self.d.upload(self.spec)
        self.d.runs.admit(self.plan, self.d.epoch, self.d.now_ms)
        self.over: dict[int, bool] = {}
        self.made: list[int] = []

    def joined(self, item: int, *, answered: bool) -> SessionCompletion:
        number = self.of_row[item // self.spec.cells_per_row]
        shown = session_completion_without_row(
            self.plan, item, SessionMembership(number, self.size[number]), answered=answered
        )
        assert shown is not None
        return shown

    def feed(self, way: str) -> None:
        """Hand out the next item: to be called, invalid, or with an output that is known."""
        item, steps = self.d.runs.cursor(self.ref), self.spec.steps
        entries: dict[str, list[Entry]] = {}
        over: list[RecordedJob] = []
        if way == "call":
            entries[TASKS] = [entry(item * steps, 10)]
        elif way == "invalid":
            over = [
                RecordedJob(item * steps, JobState.INVALID, payload(JobState.INVALID), ""),
                *self._skipped(item),
            ]
        else:
            over = [RecordedJob(item * steps, JobState.SUCCEEDED, payload(JobState.SUCCEEDED), "")]
            entries = (
                {JUDGE: [entry(item * steps + step, 5) for step in range(1, steps)]} if steps > 1 else {}
            )
        ends = not any(entries.values())
        if ends:
            self.over[item] = way == "known"
        joined = {item: self.joined(item, answered=way == "known")} if ends else {}
        fed = self.d.runs.feed(
            self.ref, self.d.epoch, item, item + 1, entries, over, self.d.now_ms, joined=joined
        )
        assert fed in (1, 2)

    def end(self, attempt: Attempt, way: str) -> None:
        """End a job: an item's, with what it tells its session, or a session's."""
        follow: list[ReadyJob | RecordedJob] = []
        joined, steps = None, self.spec.steps
        if session_of_job(self.spec, attempt.job) is None:
            item, step = divmod(attempt.job, steps)
            answered = step > 0 or way == "succeeds"
            if step == 0:
                evaluations = [ReadyJob(entry(attempt.job + n, 5), JUDGE) for n in range(1, steps)]
                follow = [*(evaluations if answered else self._skipped(item))]
            joined = self.joined(item, answered=answered)
            done = self.d.redis.getbit
            rest = [job for job in range(item * steps, (item + 1) * steps) if job != attempt.job]
            ended = {each.job for each in follow if isinstance(each, RecordedJob)}
            if all(job in ended or done(self.d.keys.done(self.ref), job) for job in rest):
                self.over[item] = answered
        self._report(attempt, way, follow, joined)

    def _report(
        self,
        attempt: Attempt,
        way: str,
        follow: Sequence[ReadyJob | RecordedJob],
        joined: SessionCompletion | None,
    ) -> None:
        if way == "killed":
            self.d.advance(LEASE_MS + 1)
            call = self.d.attempts.recover(
                attempt,
                self.d.epoch,
                completion=Completion(JobState.FAILED, SPENT, tuple(follow), session=joined),
                worker="",
                worker_timeout_ms=0,
                max_attempts=1,
                now_ms=self.d.now_ms,
            )
            assert call.run(self.d.redis) == 2
            return
        state = JobState.SUCCEEDED if way == "succeeds" else JobState.FAILED
        call = self.d.attempts.finish(
            attempt,
            "w1",
            Feedback("ok"),
            Completion(state, payload(state), tuple(follow), session=joined),
            self.d.now_ms,
        )
        assert call.run(self.d.redis) is not None

    def start(self, lane: str) -> Attempt | None:
        taken = self.d.take(self.ref, 1, lane)
        if not taken:
            return None
        assert self.d.claim(taken[0]) is not None
        self.made += [taken[0].job] if session_of_job(self.spec, taken[0].job) else []
        return taken[0]

    def check(self) -> None:
        """Every session's evaluations are where its items say, each once."""
        queued = [
            int(each.partition(":")[0])
            for lane in {*SESSIONS}
            for each in self.d.list(self.d.keys.hot(self.ref, lane))
        ]
        ready = self.made + [job for job in queued if session_of_job(self.spec, job)]
        wanted: list[int] = []
        skipped: list[int] = []
        for number in self.size:
            for cell in range(self.spec.cells_per_row):
                items = [
                    row * self.spec.cells_per_row + cell for row, s in enumerate(self.of_row) if s == number
                ]
                jobs = [
                    session_job(self.spec, number, cell, step) for step in range(len(self.spec.session_evals))
                ]
                if all(item in self.over for item in items):
                    (wanted if any(self.over[item] for item in items) else skipped).extend(jobs)
        assert sorted(ready) == sorted(wanted)
        for job in skipped:
            text = self.d.redis.hget(self.d.keys.results(self.ref), str(job))
            assert text is not None
            result = JudgeResult.from_json(text)
            assert (result.state, "no item" in (result.error or "")) == (JobState.SKIPPED, True)

    def _skipped(self, item: int) -> list[RecordedJob]:
        first = item * self.spec.steps
        return [
            RecordedJob(first + n, JobState.SKIPPED, payload(JobState.SKIPPED), JUDGE)
            for n in range(1, self.spec.steps)
        ]


@thorough
@given(
    data=st.data(),
    of_row=st.lists(st.integers(0, 3), min_size=1, max_size=7),
    repetitions=st.integers(1, 2),
    judges=st.integers(0, 2),
    session_judges=st.integers(1, 2),
)
@pytest.mark.slow
def test_session_evaluations_become_ready_once_after_the_last_item(
    real_redis: Redis,
    data: st.DataObject,
    of_row: list[int],
    repetitions: int,
    judges: int,
    session_judges: int,
) -> None:
    numbers: dict[int, int] = {}
    numbered = [numbers.setdefault(each, len(numbers)) for each in of_row]
    play = Play(real_redis, numbered, repetitions, judges, session_judges)
    held: list[Attempt] = []
    while play.d.state(play.ref)["state"] == "running":
        acts = ["feed"] if play.d.runs.cursor(play.ref) < play.spec.items else []
        lanes = [lane for lane in (TASKS, JUDGE, SESSIONS[0]) if _queued(play, lane)]
        act = data.draw(st.sampled_from(acts + lanes + (["end"] * 2 if held else [])), label="act")
        if act == "feed":
            play.feed(data.draw(st.sampled_from(["call", "call", "known", "invalid"]), label="way"))
        elif act == "end":
            attempt = held.pop(data.draw(st.integers(0, len(held) - 1), label="which"))
            play.end(
                attempt, data.draw(st.sampled_from(["succeeds", "succeeds", "fails", "killed"]), label="way")
            )
        elif (started := play.start(act)) is not None:
            held.append(started)
        play.check()
    _is_whole(play)


def test_a_session_whose_items_all_failed_is_skipped_without_a_call(real_redis: Redis) -> None:
    play = Play(real_redis, [0, 0, 0])
    for way in ("call", "call", "invalid"):
        play.feed(way)
    for way in ("fails", "killed"):
        attempt = play.start(TASKS)
        assert attempt is not None
        play.end(attempt, way)
        play.check()
    assert play.d.state(play.ref)["n:skipped"] == "1"
    assert not _queued(play, SESSIONS[0])
    _is_whole(play)


def test_items_that_failed_count_as_done_for_their_session(real_redis: Redis) -> None:
    play = Play(real_redis, [0, 0])
    play.feed("call")
    play.feed("call")
    first, second = play.start(TASKS), play.start(TASKS)
    assert first is not None
    assert second is not None
    play.end(second, "fails")
    assert not _queued(play, SESSIONS[0])
    play.end(first, "succeeds")
    assert _queued(play, SESSIONS[0])
    assert play.d.dirty() >= {f"{SESSIONS[0]}|{play.ref}"}
    play.d.cancel(play.ref)
    _is_whole(play)


def test_a_session_that_ends_while_it_is_fed_wakes_its_lane(real_redis: Redis) -> None:
    play = Play(real_redis, [0, 0])
    play.feed("known")
    assert not _queued(play, SESSIONS[0])
    play.feed("known")
    assert _queued(play, SESSIONS[0])
    assert play.d.dirty() >= {f"{SESSIONS[0]}|{play.ref}"}
    play.d.cancel(play.ref)


def test_a_sessions_evaluation_is_no_task_to_the_bounds_of_its_run(real_redis: Redis) -> None:
    play = Play(real_redis, [0])
    real_redis.hset(play.d.keys.state(play.ref), "bounded", 1)
    play.feed("known")
    assert play.start(SESSIONS[0]) is not None
    assert "tasks_in_flight" not in play.d.state(play.ref)
    play.d.cancel(play.ref)


def test_incomplete_sessions_are_skipped_once_every_item_has_ended(real_redis: Redis) -> None:
    play = Play(real_redis, [0, 0, 1])
    play.size = {0: 3, 1: 1}
    for _ in range(3):
        play.feed("known")
    attempt = play.start(SESSIONS[0])
    assert attempt is not None
    play.end(attempt, "succeeds")
    state = play.d.state(play.ref)
    assert (state["state"], state["jobs_done"], state["n:skipped"]) == ("completed", state["jobs"], "1")


def test_a_run_keeps_no_count_of_an_ended_session(real_redis: Redis) -> None:
    play = Play(real_redis, [0, 1, 1])
    play.feed("known")
    play.feed("known")
    assert play.d.redis.hlen(play.d.keys.sessions(play.ref)) == 1
    play.feed("known")
    assert play.d.redis.hlen(play.d.keys.sessions(play.ref)) == 0
    play.d.cancel(play.ref)


def _queued(play: Play, lane: str) -> int:
    ref: RunRef = play.ref
    return len(play.d.list(play.d.keys.hot(ref, lane))) + len(play.d.list(play.d.keys.fresh(ref, lane)))


def _is_whole(play: Play) -> None:
    """The run has ended at 100 %."""
    state = play.d.state(play.ref)
    assert state["state"] in ("completed", "cancelled")
    assert (state["jobs_done"], state["items_done"]) == (state["jobs"], state["items"])
    Books(play.d.redis, play.d.keys).check()
