"""A deployment with expectations: each step acts on Redis and compares the effect with the expected one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from redis import Redis

from fairlane.model.ending import CANCELLED, Completion, ReadyJob, RecordedJob
from fairlane.model.job import Attempt, JobState
from fairlane.model.run import Plan, RunRef
from fairlane.model.tokens import Entry, Estimate
from fairlane.store.write.permits import Offer, Permit
from fairlane.store.write.workers import WorkerInfo
from tests.support.conservation import Books
from tests.support.contents import Content, read_contents
from tests.support.deployment import FOREVER_MS, LEASE_MS, Deployment, attempts_of, entry, make_spec, payload

MAX_ATTEMPTS = 3
TAKEN_AWAY = ("tokens_per_minute", "input_tokens_per_minute", "output_tokens_per_minute", "requests_per_day")
JUDGE_TOKENS = Estimate(3, 4)


@dataclass(frozen=True)
class Sleep:
    """A scheduler's last request to a lane for which it waits, and until when it waits."""

    offers: Sequence[Offer]
    room: int
    most: int
    until_ms: int
    rate: float | None
    window: int


@dataclass
class Spent:
    """The least and the most attempts that a job has used, and its rate limits."""

    least: int = 0
    most: int = 0
    limited: int = 0


class Model:
    """``holders``: the expected lease holders; ``numbers``: dispatches by job; ``asleep``: lanes for which
    the scheduler waits; ``handles``: by job, the asynchronous call that its provider still makes; ``spent``:
    by job, what its ended attempts have cost it.
    """

    def __init__(self, redis: Redis, lanes: Sequence[str]) -> None:
        self.redis, self.d, self.lanes = redis, Deployment(redis), lanes
        self.plans: dict[RunRef, Plan] = {}
        self.issued: list[Attempt] = []
        self.holders: dict[str, str | None] = {}
        self.numbers: dict[tuple[RunRef, int], int] = {}
        self.asleep: dict[str, Sleep] = {}
        self.windows: dict[str, int] = {}
        self.old_epochs: list[int] = []
        self.handles: dict[tuple[RunRef, int], str] = {}
        self.spent: dict[tuple[RunRef, int], Spent] = defaultdict(Spent)
        for lane in lanes:
            self.d.lane(lane, requests_per_minute=None)

    def check(self) -> None:
        books = Books(self.redis, self.d.keys)
        books.check()
        assert {name: lease.get("worker") for name, lease in books.leased.items()} == self.holders
        for ref in self.plans:
            limited = sum(spent.limited for (run, _), spent in self.spent.items() if run == ref)
            if self.redis.exists(self.d.keys.state(ref)):
                assert self.d.count(ref, "rate_limits") == limited
            for job, text in self.redis.hgetall(self.d.keys.jobs(ref)).items():
                self._check_counts((ref, int(job)), *map(int, text.decode().split(":")[:3]))

    def _check_counts(self, job: tuple[RunRef, int], number: int, attempts: int, limited: int) -> None:
        assert number == self.numbers[job], f"{job}: dispatches"
        spent = self.spent[job]
        assert spent.least <= attempts <= spent.most, f"{job}: attempts"
        assert limited == spent.limited, f"{job}: rate limits"

    def running(self) -> list[RunRef]:
        return [ref for ref in self.plans if self.is_running(ref)]

    def is_running(self, ref: RunRef) -> bool:
        return self.d.state(ref).get("state") == "running"

    def queued(self, ref: RunRef, lane: str) -> list[str]:
        return self.d.list(self.d.keys.hot(ref, lane)) + self.d.list(self.d.keys.fresh(ref, lane))

    def _queues(self, ref: RunRef, lane: str) -> _Queues:
        keys = self.d.keys
        hot, fresh = self.d.list(keys.hot(ref, lane)), self.d.list(keys.fresh(ref, lane))
        counts = self.redis.hgetall(keys.jobs(ref))
        failed = {int(job) for job, text in counts.items() if _failures(text.decode())}
        return _Queues(hot, fresh, failed)

    def waiting(self) -> list[tuple[str, RunRef]]:
        """Lanes, and runs that have jobs queued on them."""
        return [(lane, ref) for lane in self.lanes for ref in self.plans if self.queued(ref, lane)]

    def in_flight(self) -> list[Attempt]:
        return [attempt for attempt in self.issued if attempt.id in self.holders]

    def steps(self, attempt: Attempt) -> int:
        return self.plans[RunRef(attempt.team, attempt.run)].spec.steps

    def skipped(self, ref: RunRef, job: int) -> list[RecordedJob]:
        """The judge jobs of an item whose task did not succeed."""
        steps = enumerate(self.plans[ref].eval_lanes, start=1)
        return [
            RecordedJob(job + step, JobState.SKIPPED, payload(JobState.SKIPPED), lane) for step, lane in steps
        ]

    def submit(self, ref: RunRef, rows: int, judges: Sequence[str]) -> None:
        spec = make_spec(ref.team, ref.run, rows, len(judges), self.d.now_ms)
        known = bool(self.redis.exists(self.d.keys.state(ref)))
        if not known:
            self.d.upload(spec)
        plan = Plan(spec=spec, eval_lanes=tuple(judges))
        admitted = self.d.runs.admit(plan, self.d.epoch, self.d.redis_ms)
        assert admitted == (0 if known else 1 if rows else 2)
        if not known:
            self.plans[ref] = plan

    def refuse(self, ref: RunRef) -> None:
        known = bool(self.redis.exists(self.d.keys.state(ref)))
        if not known:
            self.d.upload(make_spec(ref.team, ref.run, 1, 0, self.d.now_ms))
        assert self.d.runs.refuse(ref, "no", 0, self.d.epoch, self.d.redis_ms) is not known

    def feed(self, ref: RunRef, where: Sequence[str | None], tokens: int | Estimate, stale: int = 0) -> None:
        """Feed items to the lanes ``where``; ``None``: invalid item. A stale cursor must change nothing."""
        plan, start = self.plans[ref], self.d.runs.cursor(ref)
        upto = min(start + len(where), plan.spec.items)
        entries: dict[str, list[Entry]] = {}
        over: list[RecordedJob] = []
        for item, lane in zip(range(start, upto), where, strict=False):
            job = item * plan.spec.steps
            if lane is None:
                over += [
                    RecordedJob(job, JobState.INVALID, payload(JobState.INVALID), ""),
                    *self.skipped(ref, job),
                ]
            else:
                entries.setdefault(lane, []).append(entry(job, tokens, kind=job % 2))
                self.asleep.pop(lane, None)
        before = read_contents(self.redis) if stale else None
        fed = self.d.runs.feed(ref, self.d.epoch, start + stale, upto, entries, over, self.d.redis_ms)
        if stale:
            assert (fed, read_contents(self.redis)) == (0, before)
        else:
            assert fed == (1 if self.is_running(ref) else 2)

    def grant(self, lane: str, offers: Sequence[Offer], room: int, most: int) -> list[Attempt]:
        queued = {offer.ref: self._queues(offer.ref, lane) for offer in offers}
        self.hear()
        grant = self.d.ask(offers, lane, room=room, max_in_flight=most)
        self.windows[lane] = grant.window
        taken = attempts_of(grant, offers, lane)
        for attempt in taken:
            job = (RunRef(attempt.team, attempt.run), attempt.job)
            assert attempt.number > self.numbers.get(job, 0)
            self.numbers[job] = attempt.number
            self.holders[attempt.id] = None
        self.issued += taken
        _check_order(offers, queued, grant.permits)
        view = self.d.lanes.view(lane)
        assert len(taken) <= room
        if taken:
            assert grant.in_flight <= (view.limits.max_concurrency or FOREVER_MS)
            assert len(self.holders) <= most
        assert grant.at_ms == 0 or grant.at_ms > self.d.now_ms
        assert list(grant.queued) == [len(self.queued(offer.ref, lane)) for offer in offers]
        self.asleep.pop(lane, None)
        nothing_queued = not any(self.queued(ref, lane) for ref in self.plans)
        if grant.reason or nothing_queued:
            until_ms = grant.at_ms or 2 * FOREVER_MS
            again = [Offer(ref, 9) for ref in self.plans] if nothing_queued else offers
            self.asleep[lane] = Sleep(
                again, room - len(taken), most, until_ms, view.learned_per_minute, grant.window
            )
        return taken

    def hear(self) -> None:
        """Wake the scheduler: it no longer waits for these lanes."""
        for shown in self.d.dirty():
            lane = shown.partition("|")[0]
            for name in list(self.asleep) if lane == "*" else [lane]:
                self.asleep.pop(name, None)

    def check_sleep(self) -> None:
        """Check that a lane grants nothing more before the time it named, unless the scheduler was woken."""
        self.hear()
        for lane, sleep in list(self.asleep.items()):
            # If the rate or the window has grown, a job may start earlier than predicted; this wakes nobody.
            learned = self.d.lanes.view(lane).learned_per_minute
            if self.d.now_ms < sleep.until_ms and sleep.rate == learned:
                if self.grant(lane, sleep.offers, sleep.room, sleep.most):
                    assert self.windows[lane] > sleep.window
                else:
                    self.asleep[lane] = sleep

    def claim(self, attempt: Attempt, worker: str) -> None:
        free = attempt in self.issued and self.holders.get(attempt.id, worker) is None
        before = read_contents(self.redis)
        claim = self.d.claim(attempt, worker)
        assert (claim is not None) == free
        if claim is not None:
            assert claim.handle == self.handles.get(_job(attempt))
            spent = self.spent[_job(attempt)]
            assert spent.least <= claim.attempts <= spent.most
            assert claim.rate_limits == spent.limited
            self.holders[attempt.id] = worker
        else:
            assert read_contents(self.redis) == before

    def wait_for(self, attempt: Attempt, worker: str | None, handle: str, *, frees_slot: bool) -> None:
        """End the attempt while the provider continues its asynchronous call."""
        who = worker or self._holder(attempt)
        before = read_contents(self.redis)
        noted = self.d.wait_for(attempt, who, handle, frees_slot=frees_slot)
        assert noted == (self.holders.get(attempt.id) == who)
        if noted:
            self.handles[_job(attempt)] = handle
        else:
            assert read_contents(self.redis) == before

    def finish(
        self, attempt: Attempt, worker: str | None, state: JobState, ready: int, **feedback: Any
    ) -> None:
        """Finish a job; ``ready`` is a bitmap of the judges to call. ``worker`` ``None``: lease's holder."""
        follow: list[ReadyJob | RecordedJob] = []
        if attempt.job % self.steps(attempt) == 0:
            judges = self.skipped(RunRef(attempt.team, attempt.run), attempt.job)
            called = ready if state is JobState.SUCCEEDED else 0
            follow = [
                ReadyJob(Entry(judge.job, JUDGE_TOKENS, 1 + n), judge.lane) if called >> n & 1 else judge
                for n, judge in enumerate(judges)
            ]
        who = worker or self._holder(attempt)
        before = read_contents(self.redis)
        reported = self.d.finish(attempt, who, state=state, follow=follow, **feedback)
        self._check_report(attempt, who, reported is not None, before)

    def defer(self, attempt: Attempt, worker: str | None, **feedback: Any) -> None:
        who = worker or self._holder(attempt)
        before = read_contents(self.redis)
        reported = self.d.defer(attempt, who, reason="quota", **feedback)
        self._check_report(attempt, who, reported is not None, before)
        if reported is not None:
            if feedback.get("handle"):
                self.handles[_job(attempt)] = feedback["handle"]
            spent, cost = self.spent[_job(attempt)], feedback.get("cost", "nothing")
            spent.least += cost == "attempt"
            spent.most += cost != "nothing"
            spent.limited += feedback.get("rate_limited", False)

    def _holder(self, attempt: Attempt) -> str:
        """The holder of the lease; claims the attempt if nobody has."""
        if attempt.id in self.holders and self.holders[attempt.id] is None:
            self.claim(attempt, "w1")
        return self.holders.get(attempt.id) or "w1"

    def _check_report(self, attempt: Attempt, worker: str, applied: bool, before: dict[str, Content]) -> None:
        """Check that a report applies only if ``worker`` holds the lease; else only a counter changes."""
        assert applied == (self.holders.get(attempt.id) == worker)
        if applied:
            del self.holders[attempt.id]
            self.handles.pop(_job(attempt), None)
            return
        state, after = self.d.keys.state(RunRef(attempt.team, attempt.run)), read_contents(self.redis)
        assert _late(after.pop(state)) == _late(before.pop(state), more=1)
        assert after == before

    def beat(self, worker: str, changed: bool) -> None:
        info = WorkerInfo(worker, slots=4, lanes=(), version="1", pid=1, host="h", started_ms=0)
        asked = sorted(self.holders)
        call = self.d.workers.beat(worker, info, asked, LEASE_MS, changed=changed, now_ms=self.d.redis_ms)
        lost = [name.decode() for name in call.run(self.redis)]
        assert lost == [name for name in asked if self.holders[name] != worker]

    def recover(self, dead: str = "") -> None:
        """Recover lapsed leases and those of the workers ``dead``, each once."""
        for lease in self.d.leases.lapsed(self.d.now_ms) + (self.d.leases.of_worker(dead) if dead else []):
            is_task = lease.attempt.job % self.steps(lease.attempt) == 0
            follow = self.skipped(lease.ref, lease.attempt.job) if is_task else []
            taken = self.d.recover(lease.attempt, dead, MAX_ATTEMPTS, follow)
            assert (taken > 0) == (lease.attempt.id in self.holders)
            self.holders.pop(lease.attempt.id, None)
            self.spent[_job(lease.attempt)].most += 1

    def recover_too_early(self, attempt: Attempt, dead: str) -> None:
        deadline = self.redis.zscore(self.d.keys.leases, attempt.id)
        if deadline is None or (deadline > self.d.now_ms and self.holders[attempt.id] != dead):
            before = read_contents(self.redis)
            assert self.d.recover(attempt, dead) == 0
            assert read_contents(self.redis) == before

    def promote(self) -> None:
        due = [job.ref for job in self.d.runs.delayed(self.d.now_ms)]
        assert self.d.promote() == sum(self.is_running(ref) for ref in due)
        assert not self.d.runs.delayed(self.d.now_ms)

    def cancel(self, ref: RunRef) -> None:
        before = self.d.state(ref)
        assert self.d.cancel(ref) == int(before["jobs"]) - int(before["jobs_done"])
        for attempt in self.in_flight():
            if (attempt.team, attempt.run) == (ref.team, ref.run):
                del self.holders[attempt.id]
        assert self.d.cancel(ref) == -1

    def change_leader(self) -> None:
        self.old_epochs.append(self.d.epoch)
        self.asleep.clear()
        assert self.d.elect(f"scheduler-{len(self.old_epochs)}") > self.old_epochs[-1]

    def ask_as_old_leader(self) -> None:
        """Check that each of a leader's verbs refuses each earlier epoch and changes nothing."""
        d, before = self.d, read_contents(self.redis)
        spec = make_spec("search", "new", 1, 0, d.now_ms)
        for old in self.old_epochs[-2:]:
            assert d.runs.admit(Plan(spec=spec), old, d.redis_ms) == 0
            assert not d.runs.refuse(RunRef("search", "new"), "no", 0, old, d.redis_ms)
            for ref in self.plans:
                cursor = d.runs.cursor(ref)
                assert d.runs.feed(ref, old, cursor, cursor + 1, {}, [], d.redis_ms) == 0
                assert d.runs.end(ref, d.lanes.names(), CANCELLED, old, d.redis_ms) == -1
                for lane in self.lanes:
                    asked = {"room": 9, "max_in_flight": 9, "lease_ms": 9, "now_ms": d.redis_ms}
                    assert d.lanes.grant(lane, old, [Offer(ref, 9)], **asked) is None
            for lease in d.leases.lapsed(d.now_ms + FOREVER_MS):
                dead: Any = {"worker": lease.worker or "", "worker_timeout_ms": 0, "max_attempts": 1}
                call = d.attempts.recover(
                    lease.attempt,
                    old,
                    completion=Completion(JobState.FAILED, "{}"),
                    now_ms=d.redis_ms,
                    **dead,
                )
                assert call.run(self.redis) == 0
        assert read_contents(self.redis) == before

    def bring_to_an_end(self) -> None:
        """Complete all active runs: this must be possible in any state, and must leave no keys behind."""
        for lane in self.lanes:
            taken_away = dict.fromkeys((*TAKEN_AWAY, "max_concurrency", "min_gap_ms"))
            self.d.lanes.limit(lane, {"requests_per_minute": 0, **taken_away})
        for ref in self.running():
            self._complete(ref)
        self.d.advance(10**8)
        self.d.bid()
        self.promote()
        self.check()
        keys = self.d.keys
        assert not self.redis.exists(keys.active, keys.leases, keys.leased, keys.delayed)

    def _complete(self, ref: RunRef) -> None:
        rest = self.plans[ref].spec.items - self.d.runs.cursor(ref)
        if rest:
            self.feed(ref, [self.lanes[0]] * rest, 1)
        for _ in range(10 * MAX_ATTEMPTS):
            self.d.advance(60_000)
            self.d.bid()
            self.promote()
            self.recover()
            for lane in self.lanes:
                self.d.lanes.resume(lane, self.d.redis_ms)
                for attempt in self.grant(lane, [Offer(ref, 10**6)], 10**6, 10**6):
                    self.claim(attempt, "w1")
                    self.finish(attempt, "w1", JobState.SUCCEEDED, ready=1)
            if not self.is_running(ref):
                return
        raise AssertionError(f"{ref} does not end: {self.d.state(ref)}")


def _job(attempt: Attempt) -> tuple[RunRef, int]:
    return RunRef(attempt.team, attempt.run), attempt.job


class _Queues(NamedTuple):
    """A run's entries on a lane, and its jobs that failed or were rejected."""

    hot: list[str]
    fresh: list[str]
    failed: set[int]

    def take(self, entry: Entry) -> None:
        """Check that a permit's entry is the next: hot, or fresh before a hot one that has failed."""
        if self.hot and Entry.parse(self.hot[0]) == entry:
            self.hot.pop(0)
            return
        assert not self.hot or Entry.parse(self.hot[0]).job in self.failed
        assert Entry.parse(self.fresh.pop(0)) == entry


def _failures(counts: str) -> int:
    """Attempts, failures that may be its lane's, and rejections of a job (lib/job/attempt_counts.lua)."""
    parts = counts.split(":")
    return sum(int(parts[place]) for place in (1, 4, 6) if len(parts) > place)


def _check_order(offers: Sequence[Offer], queued: dict[RunRef, _Queues], permits: Sequence[Permit]) -> None:
    """Check that a grant takes offers in turn, up to their counts, and each run's queues from their heads."""
    turns = [permit.offer for permit in permits]
    assert turns == sorted(turns)
    assert all(turns.count(turn) <= offers[turn].most for turn in turns)
    for permit in permits:
        queued[offers[permit.offer].ref].take(permit.entry)


def _late(state: Content, more: int = 0) -> dict[bytes, bytes]:
    """A run's expected state after so many more late reports."""
    fields = dict(cast("dict[bytes, bytes]", state.value))
    return fields | {b"late": b"%d" % (int(fields.get(b"late", 0)) + more)}
