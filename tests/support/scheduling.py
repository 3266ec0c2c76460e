"""A deployment in virtual time: real schedulers and real scripts, workers that only pretend to call."""

from __future__ import annotations

import heapq
import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from redis import Redis

from fairlane.admission.lanes import Lanes
from fairlane.clock import ManualClock
from fairlane.decision import Finish, decide
from fairlane.evaluators.spec import Judge
from fairlane.job import Attempt, JobState, Outcome
from fairlane.results import SKIPPED_JUDGE, JudgeResult, TaskResult
from fairlane.run import Message, RunSpec, RunState, RunStatus
from fairlane.settings import Settings
from fairlane.store.attempts import Attempts, Claim, Over, Ready, Reported
from fairlane.store.inbox import Outbox
from fairlane.store.keys import Keys, RunRef
from fairlane.store.reading import RunReader
from fairlane.store.workers import WorkerInfo, Workers
from fairlane_scheduler.runner import QUANTUM_MS
from fairlane_scheduler.service import Scheduler
from tests.support.stand_ins import FakeWorker, Mailbox, Provider, Start, VirtualTime, answers

BEAT_MS = 1000


@dataclass(slots=True)
class FakeProcess:
    """A scheduler with the times between which its runner would wait."""

    scheduler: Scheduler
    mailbox: Mailbox
    due_ms: int
    last_ms: int = 0
    teams: set[str] | None = None
    running: bool = True
    ticks: int = 0


class Cluster:
    """Everything that happens, in order, at the milliseconds at which it would."""

    def __init__(
        self,
        redis: Redis,
        *,
        lanes: Mapping[str, Mapping[str, float]] | None = None,
        teams: Mapping[str, float] | None = None,
        bounds: Mapping[str, float] | None = None,
        workers: Iterable[FakeWorker] | None = None,
        provider: Provider = answers,
        standbys: int = 0,
        leader_redis: Any = None,
    ) -> None:
        self.redis, self.clock, self.provider = redis, ManualClock(), provider
        self.settings = Settings.model_validate(
            {
                "redis": {"deployment": "test"},
                "connections": {"sim": {"protocol": "openai", "base_url": "http://sim.invalid/v1"}},
                "lanes": lanes or {},
                "teams": {team: {"weight": weight} for team, weight in (teams or {}).items()},
                "scheduler": bounds or {},
            }
        )
        self.keys = Keys("test")
        self.lanes, self.attempts, self.registry = (
            Lanes(redis, self.keys),
            Attempts(self.keys),
            Workers(self.keys),
        )
        self.outbox, self.reader = Outbox(redis, self.keys), RunReader(redis, self.keys)
        self.specs: dict[RunRef, RunSpec] = {}
        self.starts: list[Start] = []
        self.late: list[Attempt] = []
        self.stale, self.crowded = 0, 0
        self.peak: dict[str, int] = defaultdict(int)  # most calls at once, by lane; "" over all
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order, self._ids = count(), count(1)
        self._rng = random.Random(7)
        self._queues: dict[str, deque[tuple[int, Attempt]]] = defaultdict(deque)
        self._lanes_known, self._head = 0, None
        self.workers = list(workers) if workers is not None else [FakeWorker("w1", 100)]
        for worker in self.workers:
            self._keep_beating(worker)
        self.processes = [self._process("scheduler-0", leader_redis or redis)]
        self.processes += [self._process(f"scheduler-{n + 1}", redis) for n in range(standbys)]

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    def submit(
        self,
        rows: int | Sequence[Mapping[str, Any]],
        team: str = "search",
        model: str = "sim:fast",
        judges: Sequence[str] = (),
        page_rows: int = 500,
        **spec: Any,
    ) -> RunRef:
        """Upload and hand over a run; ``judges`` are the models of its judges."""
        ref = RunRef(team, f"r{next(self._ids)}")
        content = [{"q": n} for n in range(rows)] if isinstance(rows, int) else [dict(row) for row in rows]
        pages = (content[start : start + page_rows] for start in range(0, len(content), page_rows))
        made = RunSpec.model_validate(
            {
                "run": ref.run,
                "team": team,
                "name": ref.run,
                "prompts": ((Message(role="user", content="{{ q }}"),),),
                "models": (model,),
                "params": {"max_tokens": 16},
                "evaluators": tuple(
                    Judge(name=f"judge{n}", model=judge, template="{{ output }}", choices={"yes": 1.0})
                    for n, judge in enumerate(judges)
                ),
                "rows": self.outbox.upload(ref, pages),
                "page_rows": page_rows,
                "submitted_ms": self.now_ms,
            }
            | spec
        )
        self.outbox.submit(made)
        self.specs[ref] = made
        self.announce(team)
        return ref

    def cancel(self, ref: RunRef) -> None:
        self.outbox.cancel(ref)
        self.announce(ref.team)

    def announce(self, team: str) -> None:
        """What the message on the wake-up channel does: every scheduler looks into this inbox soon."""
        for process in self.processes:
            if process.teams is not None:
                process.teams.add(team)
        self._wake()

    def status(self, ref: RunRef) -> RunStatus:
        return self.reader.status(ref, self.specs[ref])

    def results(self, ref: RunRef) -> dict[int, TaskResult]:
        """The tasks' records, by item."""
        steps = self.specs[ref].steps
        stored = self.redis.hgetall(self.keys.results(ref))
        return {
            int(job) // steps: TaskResult.from_json(text)
            for job, text in stored.items()
            if int(job) % steps == 0
        }

    def started(self, lane: str | None = None, ref: RunRef | None = None) -> list[Start]:
        """Calls begun, in order, on one lane, or of one run."""
        return [
            start
            for start in self.starts
            if lane in (None, start.attempt.lane) and (ref is None or _ref(start.attempt) == ref)
        ]

    def at(self, seconds: float, action: Callable[[], object]) -> None:
        """Let something happen ``seconds`` from now."""
        self._push(self.now_ms + round(seconds * 1000), lambda: (action(), None)[1])

    def add_worker(self, worker: FakeWorker) -> None:
        self.workers.append(worker)
        self._keep_beating(worker)

    def kill(self, worker: FakeWorker) -> None:
        """It is gone, and says nothing."""
        worker.alive = False

    def run_until_finished(self, *refs: RunRef, limit_s: float = 3600) -> float:
        """Let time pass until the runs have ended; returns the seconds it took."""
        began = self.now_ms
        waiting = set(refs or self.specs)
        for _ in self.moments(limit_s):
            waiting = {ref for ref in waiting if self.redis.sismember(self.keys.active, str(ref))} | {
                ref for ref in waiting if not self.redis.exists(self.keys.state(ref))
            }
            if not waiting:
                return (self.now_ms - began) / 1000
        raise AssertionError(f"after {limit_s:g} s: {[self.status(ref) for ref in waiting]}")

    def run_for(self, seconds: float) -> None:
        """Let ``seconds`` pass."""
        until_ms = self.now_ms + round(seconds * 1000)
        for _ in self.moments(seconds):
            pass
        self.clock.advance((until_ms - self.now_ms) / 1000)

    def moments(self, limit_s: float) -> Iterator[int]:
        """Every millisecond at which something happens, once it has."""
        until_ms = self.now_ms + round(limit_s * 1000)
        while True:
            self._settle()
            yield self.now_ms
            following = min(
                [p.due_ms for p in self.processes if p.running] + [e[0] for e in self._events[:1]]
            )
            if following > until_ms:
                return
            self.clock.advance(max(0, following - self.now_ms) / 1000)
            while self._events and self._events[0][0] <= self.now_ms:
                heapq.heappop(self._events)[2]()

    def _process(self, name: str, redis: Any) -> FakeProcess:
        mailbox, time = Mailbox(), VirtualTime(self.clock)
        scheduler = Scheduler(redis, self.settings, self.clock, name, mailbox, time)
        return FakeProcess(scheduler, mailbox, self.now_ms)

    def _push(self, at_ms: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_ms, next(self._order), action))

    def _settle(self) -> None:
        """Tick the schedulers that are due now, and hand over what they granted."""
        self._notice()
        for process in self.processes:
            if process.running and process.due_ms <= self.now_ms:
                wait = process.scheduler.tick(process.teams)
                process.ticks, process.teams, process.last_ms = process.ticks + 1, set(), self.now_ms
                process.due_ms = self.now_ms + max(wait, QUANTUM_MS)
                for attempt in process.mailbox.collect():
                    self._queues[attempt.lane].append((self.now_ms, attempt))
        self._take_up()
        self._notice()

    def _notice(self) -> None:
        """What scripts would have published: that something is marked, or due sooner."""
        pipeline = self.redis.pipeline(transaction=False)
        pipeline.exists(self.keys.dirty)
        pipeline.zrange(self.keys.delayed, 0, 0)
        pipeline.scard(self.keys.lanes)
        dirty, head, lanes = pipeline.execute()
        if dirty or head not in (self._head, []):
            self._wake()
        self._head = head
        if lanes != self._lanes_known:
            self._lanes_known = lanes
            for worker in self.workers:
                self._push(self.now_ms + 1, lambda worker=worker: self.beat(worker, changed=True))

    def _wake(self) -> None:
        for process in self.processes:
            process.due_ms = min(process.due_ms, max(self.now_ms, process.last_ms + QUANTUM_MS))

    def _take_up(self) -> None:
        for lane, queue in self._queues.items():
            while queue:
                free = [worker for worker in self.workers if worker.free > 0 and worker.serves(lane)]
                if not free:
                    self.crowded += 1
                    break
                self._start(max(free, key=lambda worker: worker.free), *queue.popleft())

    def _start(self, worker: FakeWorker, sent_ms: int, attempt: Attempt) -> None:
        lease_ms = round(self.settings.scheduler.lease_seconds * 1000)
        claim = Claim.of(self.attempts.claim(attempt, worker.name, lease_ms, self.now_ms).run(self.redis))
        if claim is None:
            self.stale += 1
            return
        worker.calls[attempt.id] = attempt
        self.starts.append(Start(self.now_ms, attempt, worker.name, self.now_ms - sent_ms))
        everywhere = [call.lane for each in self.workers if each.alive for call in each.calls.values()]
        self.peak[""] = max(self.peak[""], len(everywhere))
        self.peak[attempt.lane] = max(self.peak[attempt.lane], everywhere.count(attempt.lane))
        seconds, outcome = self.provider(attempt)
        self._push(self.now_ms + round(seconds * 1000), lambda: self._report(worker, attempt, claim, outcome))

    def _report(self, worker: FakeWorker, attempt: Attempt, claim: Claim, outcome: Outcome) -> None:
        if not worker.alive or worker.calls.pop(attempt.id, None) is None:
            return
        spec = self.specs[_ref(attempt)]
        decision = decide(outcome, claim, spec.retry, self._rng)
        if isinstance(decision, Finish):
            state = JobState.FAILED if decision.error else JobState.SUCCEEDED
            call = self.attempts.finish(
                attempt,
                worker.name,
                decision.lesson,
                state,
                self._payload(attempt, state, decision),
                self._follow(attempt, state),
                self.now_ms,
            )
        else:
            call = self.attempts.defer(
                attempt,
                worker.name,
                decision.lesson,
                delay_ms=decision.delay_ms,
                costs_attempt=decision.costs_attempt,
                rate_limited=decision.rate_limited,
                now_ms=self.now_ms,
            )
        if Reported.of(call.run(self.redis)) is None:
            self.late.append(attempt)

    def _payload(self, attempt: Attempt, state: JobState, decision: Finish) -> str:
        kind = TaskResult if attempt.job % self.specs[_ref(attempt)].steps == 0 else JudgeResult
        return kind(state, error=decision.error, attempts=decision.attempts).to_json()

    def _follow(self, attempt: Attempt, state: JobState) -> list[Ready | Over]:
        spec = self.specs[_ref(attempt)]
        if attempt.job % spec.steps:
            return []
        lanes = [judge.model for judge in spec.judges]
        if state is JobState.SUCCEEDED:
            return [Ready(attempt.job + step, 20, lane) for step, lane in enumerate(lanes, start=1)]
        skipped = JobState.SKIPPED
        return [
            Over(attempt.job + step, skipped, SKIPPED_JUDGE, lane) for step, lane in enumerate(lanes, start=1)
        ]

    def _keep_beating(self, worker: FakeWorker) -> None:
        if worker.alive:
            self.beat(worker, changed=False)
            self._push(self.now_ms + BEAT_MS, lambda: self._keep_beating(worker))

    def beat(self, worker: FakeWorker, *, changed: bool) -> None:
        """Let a worker say how it is; ``changed`` wakes the scheduler."""
        if not worker.alive:
            return
        lanes = tuple(lane for lane in self.lanes.names() if worker.serves(lane))
        info = WorkerInfo(
            worker.name, worker.slots, lanes, "0", 1, "host", 0, len(worker.calls), worker.stopping
        )
        lease_ms = round(self.settings.scheduler.lease_seconds * 1000)
        call = self.registry.beat(
            worker.name, info, list(worker.calls), lease_ms, changed=changed, now_ms=self.now_ms
        )
        for lost in call.run(self.redis):
            worker.calls.pop(lost.decode(), None)


def _ref(attempt: Attempt) -> RunRef:
    return RunRef(attempt.team, attempt.run)


def assert_complete(cluster: Cluster, ref: RunRef, *states: JobState) -> None:
    """The run is over, each of its jobs has one record, and nothing of it is left anywhere."""
    spec, status = cluster.specs[ref], cluster.status(ref)
    assert status.state is RunState.COMPLETED
    assert (status.progress, status.jobs_done, status.items_done) == (1.0, spec.jobs, spec.items)
    assert sum(status.by_state.values()) == spec.jobs
    assert set(status.by_state) <= set(states or JobState)
    stored = {int(job) for job in cluster.redis.hkeys(cluster.keys.results(ref))}
    assert stored == set(range(spec.jobs))
    items = [int(item) for item in cluster.redis.lrange(cluster.keys.finished(ref), 0, -1)]
    assert sorted(items) == list(range(spec.items))
    assert cluster.redis.zcard(cluster.keys.leases) == cluster.redis.hlen(cluster.keys.leased)
    numbers = Counter((start.attempt.job, start.attempt.number) for start in cluster.started(ref=ref))
    assert max(numbers.values()) == 1, "an attempt was executed twice"
