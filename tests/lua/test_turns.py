"""Conversations go side by side: a turn waits until the one before it has ended, and for nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.datasets.rows import encode_page
from fairlane.model.choices import Message
from fairlane.model.decision import Defer
from fairlane.model.ending import Completion, ReadyJob, RecordedJob
from fairlane.model.job import Attempt, Feedback, JobState
from fairlane.model.run import Order, RunRef, cell_of
from fairlane.pipeline.conversation import read_fields
from fairlane.pipeline.rendering import Rendering, RunItem
from fairlane.store.write.runs.runs import Turn
from fairlane_scheduler.intake.run_requests import extend
from fairlane_scheduler.state.backlog import ActiveRun
from tests.support.deployment import LEASE_MS, SPENT, entry, payload
from tests.support.redis import emptied
from tests.support.scheduler_parts import Parts

TASKS, JUDGE, WORKER = "sim:fast", "sim:judge", "w1"
TALK = ((Message(role="user", content="{{ q }}{% for t in _conversation %}{{ t.output }}{% endfor %}"),),)
BY_FIELD = Order(turns=True, conversation=True, conversation_field="who")
Rows = Sequence[Mapping[str, Any]]


class Play:
    """One run of conversations, as its scheduler and a worker see it, with what must hold at each moment."""

    def __init__(self, redis: Redis, rows: Rows, first: int, **spec: Any) -> None:
        self.parts, self.rows = Parts(emptied(redis)), rows
        self.parts.capacity.update([])
        streamed = first < len(rows)
        more = {"order": BY_FIELD, "prompts": TALK} | spec
        self.run = self.parts.admit(rows[:first], page_rows=1, open=streamed, **more)
        self.spec, self.ref, self.redis = self.run.plan.spec, self.run.ref, redis
        self.started: list[int] = []
        self.held: list[Attempt] = []

    def conversation(self, item: int) -> tuple[Any, ...]:
        cell = cell_of(self.spec, item)
        row = self.rows[cell.row]
        field = self.spec.order.conversation_field
        key = None if field is None else row.get(field)
        alone = item if field is not None and key is None else None
        return (key, alone, cell.prompt, cell.model, cell.repetition)

    def queues(self) -> list[list[int]]:
        """The items of each conversation, of the rows that the run has by now."""
        found: dict[tuple[Any, ...], list[int]] = {}
        for item in range(self.run.items):
            found.setdefault(self.conversation(item), []).append(item)
        return list(found.values())

    def has_ended(self, item: int) -> bool:
        done, steps = self.parts.keys.done(self.ref), self.spec.steps
        return all(self.redis.getbit(done, item * steps + step) for step in range(steps))

    def feed(self) -> None:
        """Tick until nothing more is fed, then check: each conversation has its first turn, and no more."""
        self.parts.feed_all()
        while any(
            ref == self.ref and not lane
            for lane, ref in self.parts.wakeups.take(self.parts.leader.epoch).work
        ):
            self.run.may_feed_next = True
            self.parts.feed_all()
        if self.run.paused or self.parts.backlog.get(self.ref) is None:
            return
        for turns in self.queues():
            fed = [item for item in turns if self.redis.getbit(self.parts.keys.fed(self.ref), item)]
            over = [item for item in turns if self.has_ended(item)]
            assert fed == turns[: len(fed)]
            assert over == turns[: len(over)]
            assert len(fed) == min(len(turns), len(over) + 1), "its turn has come, and nothing else holds it"

    def start(self, lane: str, most: int) -> None:
        queued = sum(
            self.redis.llen(key(self.ref, lane)) for key in (self.parts.keys.fresh, self.parts.keys.hot)
        )
        count = min(queued, most)
        for attempt in self.parts.permits(self.ref, count, lane) if count else ():
            item, step = divmod(attempt.job, self.spec.steps)
            (queue,) = (turns for turns in self.queues() if item in turns)
            assert all(self.has_ended(before) for before in queue[: queue.index(item)])
            if attempt.number == 1:
                assert attempt.job not in self.started, "a turn starts once"
                self.started.append(attempt.job)
            assert step == 0 or self.redis.getbit(self.parts.keys.done(self.ref), item * self.spec.steps)
            claim = self.parts.attempts.claim(attempt, WORKER, LEASE_MS, self.parts.now_ms)
            assert claim.run(self.redis) is not None
            self.held.append(attempt)

    def end(self, attempt: Attempt, way: str) -> None:
        self.held.remove(attempt)
        follow = self._follow(attempt, answered=way == "succeeds")
        if way == "retried":
            call = self.parts.attempts.defer(
                attempt, WORKER, Defer(Feedback("ok"), cost="attempt"), now_ms=self.parts.now_ms
            )
            assert call.run(self.redis) is not None
            return
        if way == "killed":
            self.parts.clock.advance(LEASE_MS / 1000 + 1)
            self.held.clear()
            self.parts.leader.tick(self.parts.clock.monotonic_ms(), self.parts.now_ms)
            for lease in self.parts.leases.lapsed(self.parts.now_ms, 1000):
                self._recover(lease.attempt)
            return
        state = JobState.SUCCEEDED if way == "succeeds" else JobState.FAILED
        memory = self._memory(attempt) if way == "succeeds" else {}
        call = self.parts.attempts.finish(
            attempt,
            WORKER,
            Feedback("ok"),
            Completion(state, payload(state), tuple(follow), memory=memory),
            self.parts.now_ms,
        )
        assert call.run(self.redis) is not None

    def take_over(self) -> None:
        """Another scheduler leads, which has Redis and nothing else."""
        self.parts.loader.forget_all()
        self.parts.loader.refresh()
        found = self.parts.backlog.get(self.ref)
        if found is not None:
            self.run = found

    def lose_fed(self, kept: int) -> None:
        """Redis loses what was fed, but the first bytes; then another scheduler leads."""
        key = self.parts.keys.fed(self.ref)
        bits = self.redis.getrange(key, 0, kept - 1) if kept else b""
        self.redis.set(key, bits) if bits else self.redis.delete(key)
        self.take_over()
        if self.run.caught_up:  # nothing is to be fed, so that only a look for lost jobs finds it
            epoch = self.parts.leader.epoch
            self.parts.runs.refind(self.ref, sorted(self.run.known_lanes), epoch, self.parts.now_ms)

    def extend(self, rows: int) -> None:
        upto = min(self.run.rows + rows, len(self.rows))
        for number in range(self.run.rows, upto):
            self.parts.outbox.append(self.ref, number, encode_page([dict(self.rows[number])]))
        extend(self.parts.runs, self.run, upto, self.parts.moment(), last=upto == len(self.rows))
        if self.run.ended:
            self.parts.backlog.drop_run(self.ref)

    def pause(self) -> None:
        self.run.paused = not self.run.paused

    @property
    def state(self) -> str:
        return self.parts.state(self.ref)["state"]

    def _memory(self, attempt: Attempt) -> dict[str, str]:
        item, step = divmod(attempt.job, self.spec.steps)
        row, rendering = self.rows[cell_of(self.spec, item).row], Rendering(self.run.plan, checked=True)
        fields = read_fields(RunItem.of(rendering, item, row)) or ()
        if step or not fields:
            return {}
        turns = json.loads(self.redis.hget(self.parts.keys.memory(self.ref), fields[0]) or "[]")
        return {fields[0]: json.dumps([*turns, {"prompt": [], "input": "q", "output": "a"}])}

    def _recover(self, attempt: Attempt) -> None:
        call = self.parts.attempts.recover(
            attempt,
            self.parts.leader.epoch,
            completion=Completion(JobState.FAILED, SPENT, tuple(self._follow(attempt, answered=False))),
            worker="",
            worker_timeout_ms=0,
            max_attempts=2,
            now_ms=self.parts.now_ms,
        )
        assert call.run(self.redis) in (1, 2)

    def _follow(self, attempt: Attempt, *, answered: bool) -> list[ReadyJob | RecordedJob]:
        if attempt.job % self.spec.steps:
            return []
        jobs = range(attempt.job + 1, attempt.job + self.spec.steps)
        if answered:
            return [ReadyJob(entry(job, 5), JUDGE) for job in jobs]
        return [RecordedJob(job, JobState.SKIPPED, payload(JobState.SKIPPED), JUDGE) for job in jobs]


turn = st.fixed_dictionaries({"who": st.sampled_from(["a", "b", "c", 1, None])}, optional={"q": st.just("q")})
acts = st.sampled_from(
    ["start", "start", "end", "end", "end", "killed", "take over", "extend", "pause", "lose"]
)


@settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=set(Phase) - {Phase.explain},
)
@given(
    rows=st.lists(turn, min_size=1, max_size=14),
    first=st.integers(1, 14),
    judges=st.integers(0, 1),
    repetitions=st.integers(1, 2),
    whole=st.booleans(),
    data=st.data(),
)
def test_a_turn_waits_for_the_one_before_it_and_for_no_other_conversation(
    real_redis: Redis, rows: Rows, first: int, judges: int, repetitions: int, whole: bool, data: st.DataObject
) -> None:
    order = Order(turns=True, conversation=True) if whole else BY_FIELD
    play = Play(real_redis, rows, min(first, len(rows)), order=order, judges=[JUDGE] * judges,
                repetitions=repetitions)  # fmt: skip
    play.feed()
    for _ in range(data.draw(st.integers(0, 30))):
        match data.draw(acts):
            case "start":
                play.start(data.draw(st.sampled_from([TASKS, JUDGE])), data.draw(st.integers(1, 4)))
            case "end" if play.held:
                way = data.draw(st.sampled_from(["succeeds", "succeeds", "fails", "retried"]))
                play.end(data.draw(st.sampled_from(play.held)), way)
            case "killed" if play.held:
                play.end(play.held[0], "killed")
            case "take over":
                play.take_over()
            case "lose" if play.state == "running":
                play.lose_fed(data.draw(st.integers(0, 2)))
            case "extend" if play.run.open and play.state == "running":
                play.extend(data.draw(st.integers(0, 4)))
            case "pause":
                play.pause()
            case _:
                continue
        play.feed()
    play.run.paused = False
    for _ in range(20 * len(rows)):
        if play.state != "running":
            break
        if play.run.open:
            play.extend(4)
        for lane in (TASKS, JUDGE):
            play.start(lane, 10)
        for attempt in list(play.held):
            play.end(attempt, "succeeds")
        play.feed()
    assert play.state == "completed"
    assert all(play.has_ended(item) for item in range(play.spec.cells_per_row * len(rows)))


@pytest.mark.parametrize("later", range(1, 6))
def test_state_is_reloaded_after_redis_lost_its_last_second(real_redis: Redis, later: int) -> None:
    play = Play(real_redis, [{"q": n, "who": who} for n in range(4) for who in "ab"], 8)
    play.feed()
    kept = {key: real_redis.dump(key) or b"" for key in real_redis.keys("*")}
    for _ in range(later):
        play.start(TASKS, 1)
        play.end(play.held[0], "succeeds")
        play.feed()
    real_redis.flushall()
    for key, value in kept.items():
        real_redis.restore(key, 0, value)
    play.started.clear()
    play.run.may_feed_next = True
    play.parts.backlog.set_queued(TASKS, play.ref, 2)
    for _ in range(10):
        play.feed()
        play.start(TASKS, 2)
        for attempt in list(play.held):
            play.end(attempt, "succeeds")
    assert play.state == "completed"


@pytest.fixture
def fed(real_redis: Redis) -> tuple[Parts, ActiveRun]:
    """Two conversations of two turns, the first turns of which are fed."""
    parts = Parts(real_redis)
    rows = [{"q": n, "who": who} for n in range(2) for who in "ab"]
    run = parts.admit(rows, order=BY_FIELD, prompts=TALK)
    parts.feed_all()
    assert parts.backlog.count(TASKS, run.ref) == 2
    return parts, run


def feed(parts: Parts, ref: RunRef, *turns: Turn, start: int = 2) -> int:
    entries = {TASKS: [entry(each.item, 5) for each in turns]}
    upto = start + len(turns)
    return parts.runs.feed(ref, parts.leader.epoch, start, upto, entries, (), parts.now_ms, turns=turns)


def test_a_turn_is_fed_once_and_after_the_one_before_it(fed: tuple[Parts, ActiveRun]) -> None:
    parts, run = fed
    assert feed(parts, run.ref, Turn(0, -1)) == 0, "it was fed"
    assert feed(parts, run.ref, Turn(2, 0)) == 0, "the one before it has not ended"
    assert feed(parts, run.ref, Turn(3, 1), Turn(2, 0)) == 0
    assert parts.redis.bitcount(parts.keys.fed(run.ref)) == 2
    for attempt in parts.permits(run.ref, 2):
        call = parts.attempts.claim(attempt, WORKER, LEASE_MS, parts.now_ms)
        assert call.run(parts.redis) is not None
        call = parts.attempts.finish(
            attempt, WORKER, Feedback("ok"), Completion(JobState.SUCCEEDED, payload(JobState.SUCCEEDED))
        )
        assert call.run(parts.redis) is not None
    assert feed(parts, run.ref, Turn(2, 0), start=1) == 0, "the cursor is elsewhere"
    assert feed(parts, run.ref, Turn(2, 0)) == 1
    assert feed(parts, run.ref, Turn(2, 0), start=3) == 0


def test_the_record_of_fed_turns_expires_with_its_run(fed: tuple[Parts, ActiveRun]) -> None:
    parts, run = fed
    assert parts.redis.ttl(parts.keys.fed(run.ref)) == -1
    parts.redis.hset(parts.keys.state(run.ref), mapping={"items_done": 4, "jobs_done": 4, "open": 1})
    parts.runs.extend(run.ref, run.plan, 4, parts.leader.epoch, parts.now_ms, last=True)
    assert parts.redis.ttl(parts.keys.fed(run.ref)) > 0
