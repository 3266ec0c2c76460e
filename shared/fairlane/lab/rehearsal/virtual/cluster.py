"""A deployment in virtual time: real schedulers and real scripts, simulated workers and providers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from fairlane.config.settings import Settings
from fairlane.core.clock import ManualClock
from fairlane.lab.rehearsal.virtual.event_queue import EventQueue
from fairlane.lab.rehearsal.virtual.simulated import (
    AnswerFunction,
    CollectingPublisher,
    EventProvider,
    SimulatedWorker,
    VirtualTime,
)
from fairlane.lab.rehearsal.virtual.simulated_workers import SimulatedWorkers, StoreCall
from fairlane.model.choices import Message
from fairlane.model.evaluators import Judge
from fairlane.model.run import RunRef, RunSpec
from fairlane.model.run_status import RunStatus
from fairlane.store.connection.connect import RedisClient
from fairlane.store.functions import keep_functions
from fairlane.store.keys import Keys
from fairlane.store.read.reading import RunReader
from fairlane.store.script import Functions
from fairlane.store.verbs import load_all
from fairlane.store.write.lanes.lanes import Lanes
from fairlane.store.write.runs.inbox import Outbox
from fairlane_scheduler.runner import QUANTUM_MS
from fairlane_scheduler.service import Scheduler

DEPLOYMENT = "test"


@dataclass(slots=True)
class SchedulerProcess:
    """A scheduler with the times of its next ticks, which its runner would wait for."""

    scheduler: Scheduler
    mailbox: CollectingPublisher
    due_ms: int
    last_ms: int = 0
    teams: set[str] | None = None
    running: bool = True
    ticks: int = 0


class Cluster:
    """Runs all events of a deployment in order, each at its virtual millisecond.

    ``teams``: weights, or all settings of a team. ``connections``: further ones besides ``sim``. ``redis`` is
    a server that nobody else uses. The same seed and the same calls give the same events, on a real server
    and on fakeredis.
    """

    def __init__(
        self,
        redis: RedisClient,
        *,
        provider: AnswerFunction | EventProvider,
        workers: Iterable[SimulatedWorker],
        clock: ManualClock | None = None,
        lanes: Mapping[str, Mapping[str, float]] | None = None,
        teams: Mapping[str, float | Mapping[str, float]] | None = None,
        bounds: Mapping[str, float] | None = None,
        connections: Mapping[str, Mapping[str, Any]] | None = None,
        standbys: int = 0,
        leader_redis: RedisClient | None = None,
        seed: int = 7,
    ) -> None:
        self.redis, self.clock = redis, clock or ManualClock()
        self.settings = _settings(lanes or {}, teams or {}, bounds or {}, connections or {})
        self.keys = Keys(DEPLOYMENT)
        self.lanes = Lanes(redis, self.keys)
        self.outbox, self.reader = Outbox(redis, self.keys), RunReader(redis, self.keys)
        self.events = EventQueue(self.clock)
        self.simulated = SimulatedWorkers(self.keys, self.settings, self.events, provider, seed)
        self.specs = self.simulated.specs
        self._ids = count(1)
        self._unseen = True  # whether Redis may have changed since the last look
        self._lanes_known, self._head = 0, list[Any]()
        load_all(redis)
        keep_functions(redis)
        self._functions = Functions()
        self.simulated.lanes = self.lanes.names()
        for worker in workers:
            self.simulated.add(worker)
        self.processes = [self._process("scheduler-0", leader_redis or redis)]
        self.processes += [self._process(f"scheduler-{n + 1}", redis) for n in range(standbys)]

    @property
    def now_ms(self) -> int:
        """The cluster's time."""
        return self.clock.now_ms()

    def submit(
        self,
        rows: int | Sequence[Mapping[str, Any]],
        team: str = "search",
        model: str = "sim:fast",
        judges: Sequence[str] = (),
        page_rows: int = 500,
        prompt: str = "{{ q }}",
        **spec: Any,
    ) -> RunRef:
        """Upload and submit a run; ``judges`` are the models of its judges."""
        ref = RunRef(team, f"r{next(self._ids)}")
        content = [{"q": n} for n in range(rows)] if isinstance(rows, int) else [dict(row) for row in rows]
        pages = (content[start : start + page_rows] for start in range(0, len(content), page_rows))
        made = RunSpec.model_validate(
            {
                "run": ref.run,
                "team": team,
                "name": ref.run,
                "prompts": ((Message(role="user", content=prompt),),),
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

    def announce(self, team: str) -> None:
        """Act like a message on the wake-up channel: every scheduler soon reads this inbox."""
        for process in self.processes:
            if process.teams is not None:
                process.teams.add(team)
        self._wake()

    def status(self, ref: RunRef) -> RunStatus:
        """A run's status, as its client reads it."""
        return self.reader.status(ref, self.specs[ref])

    def run_for(self, seconds: float) -> None:
        """Let ``seconds`` pass."""
        until_ms = self.now_ms + round(seconds * 1000)
        for _ in self._moments(seconds):
            pass
        self.clock.advance((until_ms - self.now_ms) / 1000)

    def _moments(self, limit_s: float) -> Iterator[int]:
        until_ms = self.now_ms + round(limit_s * 1000)
        self._unseen = True
        while True:
            self._run_now()
            yield self.now_ms
            following = min((p.due_ms for p in self.processes if p.running), default=until_ms + 1)
            next_ms = self.events.next_ms
            if next_ms is not None:
                following = min(following, next_ms)
            if following > until_ms:
                return
            self.clock.advance(max(0, following - self.now_ms) / 1000)
            self.events.run_due()

    def _process(self, name: str, redis: RedisClient) -> SchedulerProcess:
        mailbox, time = CollectingPublisher(), VirtualTime(self.clock)
        scheduler = Scheduler(redis, self.settings, self.clock, name, mailbox, time)
        return SchedulerProcess(scheduler, mailbox, self.now_ms)

    def _run_now(self) -> None:
        """Send reports to Redis, tick schedulers that are due, start the calls that they granted."""
        self._send(self.simulated.take_calls())
        while led_to := self.simulated.take_calls():  # a worker finishes a job that a reply has ended
            self._send(led_to)
        for process in self.processes:
            if process.running and process.due_ms <= self.now_ms:
                wait = process.scheduler.tick(process.teams)
                process.ticks, process.teams, process.last_ms = process.ticks + 1, set(), self.now_ms
                process.due_ms = self.now_ms + max(wait, QUANTUM_MS)
                self.simulated.enqueue(process.mailbox.collect())
                self._unseen = True
        claims = self.simulated.claim_queued()
        self._send(claims)
        if claims:
            self.simulated.measure_peak()

    def _send(self, calls: list[StoreCall]) -> None:
        """Run these scripts and read what they have changed, in one round trip."""
        if not calls and not self._unseen:
            return
        self._unseen = False
        pipeline = self.redis.pipeline(transaction=False)
        for call, _ in calls:
            self._functions.queue(pipeline, call)
        pipeline.exists(self.keys.dirty)
        pipeline.zrange(self.keys.delayed, 0, 0)
        pipeline.scard(self.keys.lanes)
        replies = pipeline.execute()
        for (_, on_reply), reply in zip(calls, replies, strict=False):
            on_reply(reply)
        self._note_changes(*replies[len(calls) :])

    def _note_changes(self, dirty: int, head: list[Any], lanes: int) -> None:
        """Wake the schedulers, as a script's message would: something is marked, or due sooner."""
        if dirty or (head and head != self._head):
            self._wake()
        self._head = head
        if lanes != self._lanes_known:
            self._lanes_known, self.simulated.lanes = lanes, self.lanes.names()
            for worker in self.simulated.workers:
                self.events.after(1, partial(self.simulated.beat, worker, changed=True))

    def _wake(self) -> None:
        for process in self.processes:
            process.due_ms = min(process.due_ms, max(self.now_ms, process.last_ms + QUANTUM_MS))


def _settings(
    lanes: Mapping[str, Mapping[str, float]],
    teams: Mapping[str, float | Mapping[str, float]],
    bounds: Mapping[str, float],
    connections: Mapping[str, Mapping[str, Any]],
) -> Settings:
    return Settings.model_validate(
        {
            "redis": {"deployment": DEPLOYMENT},
            "connections": {
                "sim": {"protocol": "openai", "base_url": "http://sim.invalid/v1"},
                **connections,
            },
            "lanes": lanes,
            "teams": {
                team: claim if isinstance(claim, Mapping) else {"weight": claim}
                for team, claim in teams.items()
            },
            "scheduler": bounds,
        }
    )
