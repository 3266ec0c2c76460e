"""A deployment in virtual time: real schedulers and real scripts, workers that only pretend to call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from fairlane.admission.lanes import Lanes
from fairlane.clock import ManualClock
from fairlane.evaluators.spec import Judge
from fairlane.run import Message, RunSpec, RunStatus
from fairlane.settings import Settings
from fairlane.store.connect import RedisClient
from fairlane.store.inbox import Outbox
from fairlane.store.keys import Keys, RunRef
from fairlane.store.reading import RunReader
from fairlane.store.script import load_all
from fairlane_scheduler.rehearsal.agenda import Agenda
from fairlane_scheduler.rehearsal.stand_ins import Answering, Mailbox, PretendedWorker, Serving, VirtualTime
from fairlane_scheduler.rehearsal.workforce import Errand, Workforce
from fairlane_scheduler.runner import QUANTUM_MS
from fairlane_scheduler.service import Scheduler

DEPLOYMENT = "test"


@dataclass(slots=True)
class SchedulerProcess:
    """A scheduler with the times between which its runner would wait."""

    scheduler: Scheduler
    mailbox: Mailbox
    due_ms: int
    last_ms: int = 0
    teams: set[str] | None = None
    running: bool = True
    ticks: int = 0


class Cluster:
    """Everything that happens, in order, at the milliseconds at which it would.

    ``teams``: weights, or all that the settings say of a team.
    ``redis`` is a server of its own: what it holds is the cluster's. The same seed and the same calls give
    the same course of events, on a real server and on fakeredis.
    """

    def __init__(
        self,
        redis: RedisClient,
        *,
        provider: Answering | Serving,
        workers: Iterable[PretendedWorker],
        clock: ManualClock | None = None,
        lanes: Mapping[str, Mapping[str, float]] | None = None,
        teams: Mapping[str, float | Mapping[str, float]] | None = None,
        bounds: Mapping[str, float] | None = None,
        standbys: int = 0,
        leader_redis: RedisClient = None,
        seed: int = 7,
    ) -> None:
        self.redis, self.clock = redis, clock or ManualClock()
        self.settings = _settings(lanes or {}, teams or {}, bounds or {})
        self.keys = Keys(DEPLOYMENT)
        self.lanes = Lanes(redis, self.keys)
        self.outbox, self.reader = Outbox(redis, self.keys), RunReader(redis, self.keys)
        self.agenda = Agenda(self.clock)
        self.crew = Workforce(self.keys, self.settings, self.agenda, provider, seed)
        self.specs = self.crew.specs
        self._ids = count(1)
        self._unseen = True  # whether Redis may have changed since it was last looked at
        self._lanes_known, self._head = 0, list[Any]()
        self._awaited: set[RunRef] | None = None
        load_all(redis)
        self.crew.lanes = self.lanes.names()
        for worker in workers:
            self.crew.hire(worker)
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
        prompt: str = "{{ q }}",
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

    def at(self, seconds: float, action: Callable[[], object]) -> None:
        """Let something happen ``seconds`` from now."""

        def act() -> None:
            self._tell(self.crew.take_errands())
            action()
            self._unseen = True

        self.agenda.after(round(seconds * 1000), act)

    def run_until_finished(self, *refs: RunRef, limit_s: float = 3600) -> float:
        """Let time pass until the runs have ended; returns the seconds it took."""
        began = self.now_ms
        self._awaited = set(refs or self.specs)
        try:
            for _ in self._moments(limit_s):
                if not self._awaited:
                    return (self.now_ms - began) / 1000
            raise AssertionError(f"after {limit_s:g} s: {[self.status(ref) for ref in self._awaited]}")
        finally:
            self._awaited = None

    def run_for(self, seconds: float) -> None:
        """Let ``seconds`` pass."""
        until_ms = self.now_ms + round(seconds * 1000)
        for _ in self._moments(seconds):
            pass
        self.clock.advance((until_ms - self.now_ms) / 1000)

    def moments(self, limit_s: float) -> Iterator[int]:
        """Every millisecond at which something happens, once it has; whoever reads may act in between."""
        for now_ms in self._moments(limit_s):
            yield now_ms
            self._unseen = True

    def _moments(self, limit_s: float) -> Iterator[int]:
        until_ms = self.now_ms + round(limit_s * 1000)
        self._unseen = True
        while True:
            self._settle()
            yield self.now_ms
            following = min((p.due_ms for p in self.processes if p.running), default=until_ms + 1)
            next_ms = self.agenda.next_ms
            if next_ms is not None:
                following = min(following, next_ms)
            if following > until_ms:
                return
            self.clock.advance(max(0, following - self.now_ms) / 1000)
            self.agenda.happen()

    def _process(self, name: str, redis: RedisClient) -> SchedulerProcess:
        mailbox, time = Mailbox(), VirtualTime(self.clock)
        scheduler = Scheduler(redis, self.settings, self.clock, name, mailbox, time)
        return SchedulerProcess(scheduler, mailbox, self.now_ms)

    def _settle(self) -> None:
        """Tell Redis what was reported, tick the schedulers that are due, start what they granted."""
        self._tell(self.crew.take_errands())
        for process in self.processes:
            if process.running and process.due_ms <= self.now_ms:
                wait = process.scheduler.tick(process.teams)
                process.ticks, process.teams, process.last_ms = process.ticks + 1, set(), self.now_ms
                process.due_ms = self.now_ms + max(wait, QUANTUM_MS)
                self.crew.enqueue(process.mailbox.collect())
                self._unseen = True
        claims = self.crew.take_up()
        self._tell(claims)
        if claims:
            self.crew.measure_peak()

    def _tell(self, errands: list[Errand]) -> None:
        """Run these scripts, and look at what scripts have left behind, all in one round trip."""
        if not errands and not self._unseen:
            return
        self._unseen = False
        pipeline = self.redis.pipeline(transaction=False)
        for call, _ in errands:
            call.queue(pipeline)
        pipeline.exists(self.keys.dirty)
        pipeline.zrange(self.keys.delayed, 0, 0)
        pipeline.scard(self.keys.lanes)
        if self._awaited is not None:
            pipeline.smembers(self.keys.active)
        replies = pipeline.execute()
        for (_, heard), reply in zip(errands, replies, strict=False):
            heard(reply)
        self._notice(*replies[len(errands) :])

    def _notice(self, dirty: int, head: list[Any], lanes: int, active: Iterable[bytes] = ()) -> None:
        """What scripts would have published: that something is marked, or due sooner."""
        if dirty or (head and head != self._head):
            self._wake()
        self._head = head
        if lanes != self._lanes_known:
            self._lanes_known, self.crew.lanes = lanes, self.lanes.names()
            for worker in self.crew.workers:
                self.agenda.after(1, partial(self.crew.beat, worker, changed=True))
        if self._awaited is not None:
            self._awaited = self._unfinished(self._awaited, {text.decode() for text in active})

    def _unfinished(self, awaited: set[RunRef], active: set[str]) -> set[RunRef]:
        return {ref for ref in awaited if str(ref) in active or not self.redis.exists(self.keys.state(ref))}

    def _wake(self) -> None:
        for process in self.processes:
            process.due_ms = min(process.due_ms, max(self.now_ms, process.last_ms + QUANTUM_MS))


def _settings(
    lanes: Mapping[str, Mapping[str, float]],
    teams: Mapping[str, float | Mapping[str, float]],
    bounds: Mapping[str, float],
) -> Settings:
    return Settings.model_validate(
        {
            "redis": {"deployment": DEPLOYMENT},
            "connections": {"sim": {"protocol": "openai", "base_url": "http://sim.invalid/v1"}},
            "lanes": lanes,
            "teams": {
                team: claim if isinstance(claim, Mapping) else {"weight": claim}
                for team, claim in teams.items()
            },
            "scheduler": bounds,
        }
    )
