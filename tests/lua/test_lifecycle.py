"""Runs, leases and lanes under arbitrary histories: nothing is lost, counted twice or done by a stranger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from redis import Redis

from fairlane.admission.lanes import Offer, Permit
from fairlane.job import Attempt, JobState
from fairlane.run import Plan
from fairlane.store.attempts import Over, Ready, Signal
from fairlane.store.keys import RunRef
from tests.support.conservation import Books
from fairlane.store.workers import WorkerInfo
from tests.support.deployment import FOREVER_MS, Deployment, attempts_of, make_spec, payload, snapshot
from tests.support.redis import emptied

TEAMS, RUNS = ["search", "ads"], ["r1", "r2", "r3"]
LANES = ["sim:fast", "sim:slow", "odd lane:{x}/y"]
JUDGE_LANES = ["sim:judge", "sim:fast"]
WORKERS = ["w1", "w2", "w3"]
SIGNALS: list[Signal] = ["ok", "answered", "limited", "overloaded", "broken", "refused", "none"]
MAX_ATTEMPTS = 3

lanes = st.sampled_from(LANES)
workers = st.sampled_from(WORKERS)
signals = st.sampled_from(SIGNALS)
retry_after = st.none() | st.integers(1, 5000)
limits = st.fixed_dictionaries(
    {},
    optional={
        "requests_per_minute": st.none() | st.sampled_from([0, 0.5, 60, 60_000]),
        "tokens_per_minute": st.none() | st.sampled_from([0, 600, 600_000]),
        "burst_seconds": st.none() | st.sampled_from([0.05, 1.0, 10.0]),
        "max_concurrency": st.none() | st.integers(1, 4),
        "min_gap_ms": st.none() | st.sampled_from([0, 50]),
    },
)


@dataclass(frozen=True)
class _Sleep:
    """What a scheduler that waits for a lane had asked it, and until when it was told to wait."""

    offers: list[Offer]
    room: int
    most: int
    until_ms: int
    rate: float | None


class Lifecycle(RuleBasedStateMachine):
    """All roles act in any order. ``holders`` is what the rules expect of leases; `Books` checks everything else."""

    attempts = Bundle("attempts")

    def __init__(self, redis: Redis) -> None:
        super().__init__()
        self.d = Deployment(emptied(redis))
        self.redis = redis
        self.plans: dict[RunRef, Plan] = {}
        self.holders: dict[str, str | None] = {}
        self.numbers: dict[tuple[RunRef, int], int] = {}
        self.old_epochs: list[int] = []
        self.asleep: dict[str, _Sleep] = {}
        for lane in {*LANES, *JUDGE_LANES}:
            self.d.lane(lane)

    @rule(
        team=st.sampled_from(TEAMS),
        run=st.sampled_from(RUNS),
        rows=st.integers(0, 8),
        judges=st.lists(st.sampled_from(JUDGE_LANES), max_size=2),
    )
    def submit(self, team: str, run: str, rows: int, judges: list[str]) -> None:
        ref = RunRef(team, f"{team}-{run}")
        spec = make_spec(ref.team, ref.run, rows, len(judges), self.d.now_ms)
        before = self.redis.exists(self.d.keys.state(ref))
        if not before:
            self.d.upload(spec)
        plan = Plan(spec=spec, judge_lanes=tuple(judges))
        admitted = self.d.runs.admit(spec, plan, self.d.epoch, self.d.now_ms)
        assert admitted == (0 if before else 1 if rows else 2)
        if not before:
            self.plans[ref] = plan

    @rule(team=st.sampled_from(TEAMS), run=st.sampled_from(RUNS))
    def refuse(self, team: str, run: str) -> None:
        ref = RunRef(team, f"{team}-{run}")
        before = self.redis.exists(self.d.keys.state(ref))
        if not before:
            self.d.upload(make_spec(ref.team, ref.run, 1, 0, self.d.now_ms))
        assert self.d.runs.refuse(ref, "no", self.d.now_ms, self.d.epoch, self.d.now_ms) != before

    @rule(
        data=st.data(), where=st.lists(st.none() | lanes, min_size=1, max_size=8), tokens=st.integers(0, 50)
    )
    def feed(self, data: st.DataObject, where: list[str | None], tokens: int) -> None:
        ref = self.draw_run(data)
        if ref is None:
            return
        plan, start = self.plans[ref], self.d.runs.cursor(ref)
        upto = min(start + len(where), plan.spec.items)
        entries: dict[str, list[str]] = {}
        over: list[Over] = []
        for item, lane in zip(range(start, upto), where, strict=False):
            job = item * plan.spec.steps
            if lane is None:
                over += [Over(job, JobState.INVALID, payload(JobState.INVALID), ""), *self.skipped(ref, job)]
            else:
                entries.setdefault(lane, []).append(f"{job}:{tokens}")
        stale = data.draw(st.sampled_from([0, 0, 0, 1]), label="stale cursor")
        before = snapshot(self.redis) if stale else None
        for lane in entries:
            self.asleep.pop(lane, None)
        fed = self.d.runs.feed(ref, self.d.epoch, start + stale, upto, entries, over, self.d.now_ms)
        if stale:
            assert (fed, snapshot(self.redis)) == (0, before)
        else:
            assert fed == (2 if self.d.state(ref)["state"] == "completed" else 1)

    @rule(
        target=attempts,
        data=st.data(),
        lane=lanes | st.sampled_from(JUDGE_LANES),
        counts=st.lists(st.integers(1, 4), min_size=1, max_size=3),
        room=st.integers(0, 6),
        most=st.integers(1, 12),
    )
    def grant(
        self, data: st.DataObject, lane: str, counts: list[int], room: int, most: int
    ) -> MultipleResults[Attempt]:
        runs = sorted(self.plans, key=str)
        offers = [Offer(data.draw(st.sampled_from(runs)), count) for count in counts] if runs else []
        queued = {offer.ref: self.queued(offer.ref, lane) for offer in offers}
        self.hear()
        grant = self.d.ask(offers, lane, room=room, max_in_flight=most)
        taken = attempts_of(grant, offers, lane)
        for attempt in taken:
            key = (RunRef(attempt.team, attempt.run), attempt.job)
            assert attempt.number > self.numbers.get(key, 0)
            self.numbers[key] = attempt.number
            self.holders[attempt.id] = None
        self.check_order(offers, queued, grant.permits)
        assert len(taken) <= room
        if taken:
            assert grant.in_flight <= (self.d.lanes.view(lane).limits.max_concurrency or 10**9)
            assert len(self.holders) <= most
        assert grant.at_ms == 0 or grant.at_ms > self.d.now_ms
        assert list(grant.left) == [len(self.queued(offer.ref, lane)) for offer in offers]
        if grant.reason or not any(grant.left):
            rate = self.d.lanes.view(lane).learned_per_minute
            self.asleep[lane] = _Sleep(offers, room - len(taken), most, grant.at_ms or FOREVER_MS * 2, rate)
        return multiple(*taken)

    @rule(lane=lanes | st.sampled_from(JUDGE_LANES))
    def a_scheduler_that_was_not_woken_misses_nothing(self, lane: str) -> None:
        self.hear()
        sleep = self.asleep.get(lane)
        # A rate that has grown lets a waiting job start a little earlier than was foretold; nobody is woken for that.
        if (
            sleep
            and self.d.now_ms < sleep.until_ms
            and sleep.rate == self.d.lanes.view(lane).learned_per_minute
        ):
            assert not self.d.ask(sleep.offers, lane, room=sleep.room, max_in_flight=sleep.most).permits

    @rule(attempt=attempts, worker=workers)
    def claim(self, attempt: Attempt, worker: str) -> None:
        free = attempt.id in self.holders and self.holders[attempt.id] is None
        before = snapshot(self.redis)
        claimed = self.d.claim(attempt, worker)
        assert (claimed is not None) == free
        if free:
            self.holders[attempt.id] = worker
        else:
            assert snapshot(self.redis) == before

    @rule(
        data=st.data(),
        attempt=attempts,
        signal=signals,
        worker=st.none() | workers,
        used=st.none() | st.integers(0, 60),
        retry_after_ms=retry_after,
        state=st.sampled_from([JobState.SUCCEEDED, JobState.FAILED]),
    )
    def finish(
        self,
        data: st.DataObject,
        attempt: Attempt,
        signal: Signal,
        worker: str | None,
        used: int | None,
        retry_after_ms: int | None,
        state: JobState,
    ) -> None:
        ref = RunRef(attempt.team, attempt.run)
        steps = self.plans[ref].spec.steps
        follow: list[Ready | Over] = []
        if attempt.job % steps == 0:
            follow = list(self.skipped(ref, attempt.job))
            if state is JobState.SUCCEEDED:
                ready = data.draw(st.integers(0, 2 ** len(follow) - 1), label="ready judges")
                follow = [
                    Ready(over.job, 7, over.lane) if ready >> n & 1 else over
                    for n, over in enumerate(follow)
                    if isinstance(over, Over)
                ]
        who = worker or self.holders.get(attempt.id) or "w1"
        before = snapshot(self.redis)
        reported = self.d.finish(attempt, who, signal, state, used, retry_after_ms, follow)
        self.check_report(attempt, who, reported is not None, before)

    @rule(
        attempt=attempts,
        signal=signals,
        worker=st.none() | workers,
        used=st.none() | st.integers(0, 60),
        retry_after_ms=retry_after,
        delay_ms=st.sampled_from([0, 0, 100, 5000]),
        costs_attempt=st.booleans(),
        rate_limited=st.booleans(),
    )
    def defer(
        self,
        attempt: Attempt,
        signal: Signal,
        worker: str | None,
        used: int | None,
        retry_after_ms: int | None,
        delay_ms: int,
        costs_attempt: bool,
        rate_limited: bool,
    ) -> None:
        who = worker or self.holders.get(attempt.id) or "w1"
        before = snapshot(self.redis)
        reported = self.d.defer(
            attempt, who, signal, used, retry_after_ms, "quota", delay_ms, costs_attempt, rate_limited
        )
        self.check_report(attempt, who, reported is not None, before)

    @rule(attempt=consumes(attempts))
    def forget(self, attempt: Attempt) -> None:
        """Its message is lost; so the rules above choose among few attempts."""

    @rule(worker=workers, changed=st.booleans())
    def beat(self, worker: str, changed: bool) -> None:
        asked = sorted(self.holders)
        info = self.worker_info(worker)
        call = self.d.workers.beat(worker, info, asked, 15_000, changed=changed, now_ms=self.d.now_ms)
        lost = [name.decode() for name in call.run(self.redis)]
        assert lost == [name for name in asked if self.holders[name] != worker]

    @rule(dead=st.sampled_from(["", *WORKERS]))
    def recover(self, dead: str) -> None:
        due = self.d.leases.lapsed(self.d.now_ms) + (self.d.leases.of_worker(dead) if dead else [])
        for lease in due:
            ref, attempt = lease.ref, lease.attempt
            steps = self.plans[ref].spec.steps
            follow = self.skipped(ref, attempt.job) if attempt.job % steps == 0 else []
            taken = self.d.recover(attempt, dead, MAX_ATTEMPTS, follow)
            assert (taken > 0) == (attempt.id in self.holders)
            self.holders.pop(attempt.id, None)

    @rule(attempt=attempts, dead=workers)
    def recover_too_early(self, attempt: Attempt, dead: str) -> None:
        live = (
            attempt.id in self.holders and self.redis.zscore(self.d.keys.leases, attempt.id) > self.d.now_ms
        )
        if live and self.holders[attempt.id] != dead:
            before = snapshot(self.redis)
            assert self.d.recover(attempt, dead) == 0
            assert snapshot(self.redis) == before

    @rule()
    def promote(self) -> None:
        before = {job.member for job in self.d.runs.delayed(self.d.now_ms)}
        running = sum(self.is_running(RunRef.parse(member.split("|")[0])) for member in before)
        assert self.d.promote() == running
        assert not self.d.runs.delayed(self.d.now_ms)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        ref = self.draw_run(data)
        if ref is None or data.draw(st.integers(0, 3), label="really") < 3:
            return
        open_jobs = int(self.d.state(ref)["jobs"]) - int(self.d.state(ref)["jobs_done"])
        assert self.d.cancel(ref) == open_jobs
        self.holders = {name: who for name, who in self.holders.items() if name.split("/")[0] != ref.run}
        assert self.d.cancel(ref) == -1

    @rule(milliseconds=st.sampled_from([0, 1, 10, 200, 1000, 15_000, 40_000]))
    def advance(self, milliseconds: int) -> None:
        self.d.advance(milliseconds)

    @rule(lane=lanes, changed=limits)
    def limit(self, lane: str, changed: dict[str, float | int | None]) -> None:
        assert self.d.lanes.limit(lane, changed) is False

    @rule(lane=lanes, pause=st.booleans())
    def pause_or_resume(self, lane: str, pause: bool) -> None:
        if pause:
            self.d.lanes.pause(lane)
        else:
            self.d.lanes.resume(lane, self.d.now_ms)

    @rule(lane=lanes)
    def drain(self, lane: str) -> None:
        self.d.lanes.drain(lane, self.d.now_ms)

    @rule()
    def change_leader(self) -> None:
        self.old_epochs.append(self.d.epoch)
        self.asleep.clear()
        self.d.elect(f"scheduler-{len(self.old_epochs)}")
        assert self.d.epoch > self.old_epochs[-1]

    @rule(data=st.data())
    def an_old_leader_is_refused(self, data: st.DataObject) -> None:
        if not self.old_epochs:
            return
        d, old, before = self.d, self.old_epochs[-1], snapshot(self.redis)
        spec = make_spec("search", "new", 1, 0, d.now_ms)
        assert d.runs.admit(spec, Plan(spec=spec), old, d.now_ms) == 0
        assert d.runs.refuse(RunRef("search", "new"), "no", 0, old, d.now_ms) is False
        for ref in self.plans:
            cursor = d.runs.cursor(ref)
            assert d.runs.feed(ref, old, cursor, cursor + 1, {}, [], d.now_ms) == 0
            assert d.runs.cancel(ref, d.lanes.names(), old, d.now_ms) == -1
            for lane in LANES:
                asked = {"room": 9, "max_in_flight": 9, "lease_ms": 9, "now_ms": d.now_ms}
                assert d.lanes.grant(lane, old, [Offer(ref, 9)], **asked) is None
        for lease in d.leases.lapsed(d.now_ms + 10**9):
            call = d.attempts.recover(
                lease.attempt,
                old,
                dead_worker=lease.worker or "",
                max_attempts=1,
                payload="",
                follow=[],
                now_ms=d.now_ms,
            )
            assert call.run(self.redis) == 0
        assert snapshot(self.redis) == before

    @invariant()
    def the_books_agree(self) -> None:
        books = Books(self.redis, self.d.keys)
        books.check()
        assert {name: lease.get("worker") for name, lease in books.leased.items()} == self.holders

    def teardown(self) -> None:
        """Whatever the history was, every run that goes on can be brought to its end."""
        for lane in self.d.lanes.names():
            self.d.lanes.limit(
                lane,
                dict.fromkeys(("requests_per_minute", "tokens_per_minute", "max_concurrency", "min_gap_ms")),
            )
            self.d.lanes.limit(lane, {"requests_per_minute": 0})
        for ref in self.plans:
            if self.is_running(ref):
                self.complete(ref)
        self.recover("")
        self.d.advance(10**6)
        self.promote()
        self.the_books_agree()
        assert not self.redis.exists(
            self.d.keys.active, self.d.keys.leases, self.d.keys.leased, self.d.keys.delayed
        )

    def complete(self, ref: RunRef) -> None:
        d, spec = self.d, self.plans[ref].spec
        rest = range(d.runs.cursor(ref), spec.items)
        entries = {LANES[0]: [f"{item * spec.steps}:1" for item in rest]} if rest else {}
        assert d.runs.feed(ref, d.epoch, rest.start, spec.items, entries, [], d.now_ms) == 1
        for _ in range(100):
            d.advance(60_000)
            self.promote()
            self.recover("")
            for lane in d.lanes.names():
                d.lanes.resume(lane, d.now_ms)
                for attempt in d.take(ref, lane=lane):
                    self.holders[attempt.id] = None
                    self.claim(attempt, "w1")
                    follow = self.skipped(ref, attempt.job) if attempt.job % spec.steps == 0 else []
                    assert d.finish(attempt, "w1", "ok", JobState.SUCCEEDED, follow=follow) is not None
                    del self.holders[attempt.id]
            if not self.is_running(ref):
                return
        raise AssertionError(f"{ref} does not end: {d.state(ref)}")

    def skipped(self, ref: RunRef, job: int) -> list[Over]:
        judge_lanes = self.plans[ref].judge_lanes
        return [
            Over(job + step, JobState.SKIPPED, payload(JobState.SKIPPED), lane)
            for step, lane in enumerate(judge_lanes, start=1)
        ]

    def hear(self) -> None:
        """What the scheduler does when it is woken: it forgets that it waits for these lanes."""
        for told in self.d.dirty():
            lane = told.partition("|")[0]
            self.asleep = (
                {} if lane == "*" else {name: why for name, why in self.asleep.items() if name != lane}
            )

    def queued(self, ref: RunRef, lane: str) -> list[str]:
        return self.d.list(self.d.keys.hot(ref, lane)) + self.d.list(self.d.keys.fresh(ref, lane))

    def is_running(self, ref: RunRef) -> bool:
        return self.d.state(ref).get("state") == "running"

    def draw_run(self, data: st.DataObject) -> RunRef | None:
        running = [ref for ref in sorted(self.plans, key=str) if self.is_running(ref)]
        return data.draw(st.sampled_from(running), label="run") if running else None

    def check_order(
        self, offers: Sequence[Offer], queued: dict[RunRef, list[str]], permits: Sequence[Permit]
    ) -> None:
        """Offers in turn, none beyond its count, and each run's queue from its head."""
        turns = [permit.offer for permit in permits]
        assert turns == sorted(turns)
        assert all(turns.count(turn) <= offers[turn].count for turn in turns)
        for permit in permits:
            assert queued[offers[permit.offer].ref].pop(0) == f"{permit.job}:{permit.tokens}"

    def check_report(self, attempt: Attempt, worker: str, applied: bool, before: dict[bytes, object]) -> None:
        """Applied exactly where ``worker`` holds the lease; else nothing has changed but a counter."""
        assert applied == (self.holders.get(attempt.id) == worker)
        if applied:
            del self.holders[attempt.id]
            return
        ref = RunRef(attempt.team, attempt.run)
        state = self.d.keys.state(ref).encode()
        after = snapshot(self.redis)
        late = self.d.count(ref, "late")
        self.redis.hset(state, "late", late - 1)
        if late == 1:
            self.redis.hdel(state, "late")
        assert snapshot(self.redis) == before
        self.redis.hset(state, "late", late)
        assert snapshot(self.redis) == after

    @staticmethod
    def worker_info(worker: str) -> WorkerInfo:
        return WorkerInfo(worker, slots=4, lanes=(), version="1", pid=1, host="h", started_ms=0)


def test_no_history_loses_a_job_or_lets_two_do_it(real_server: Redis) -> None:
    run_state_machine_as_test(
        lambda: Lifecycle(real_server),
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
