"""The parts of a scheduler under a manual clock, wired as in its service but each within reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from redis import Redis

from fairlane.admission.lanes import Lanes
from fairlane.clock import ManualClock
from fairlane.datasets import Numbering
from fairlane.evaluators.spec import Judge
from fairlane.run import Message, Plan, RunSpec
from fairlane.settings import Settings
from fairlane.store.attempts import Attempts
from fairlane.store.inbox import Inbox, Outbox
from fairlane.store.keys import Keys, RunRef
from fairlane.store.leader import LeaderLease
from fairlane.store.leases import Leases
from fairlane.store.runs import Runs
from fairlane.store.scopes import Scopes
from fairlane.store.workers import Workers
from fairlane_scheduler.backlog import ActiveRun, Backlog
from fairlane_scheduler.capacity import Capacity
from fairlane_scheduler.dispatcher import Dispatcher
from fairlane_scheduler.feeder import Feeder
from fairlane_scheduler.lane_registry import LaneRegistry
from fairlane_scheduler.lane_sharing import LaneSharing
from fairlane_scheduler.leader import Leader
from fairlane_scheduler.receiver import Receiver
from fairlane_scheduler.recoverer import Recoverer
from fairlane_scheduler.run_loader import RunLoader
from fairlane_scheduler.server_time import Moment
from fairlane_scheduler.wakeups import Wakeups
from tests.support.stand_ins import Mailbox

LEADER_LEASE_MS = 3000
WORKER_TIMEOUT_MS = 5000
CONNECTIONS = {
    "sim": {"protocol": "openai", "base_url": "http://sim.invalid/v1"},
    "shared": {"protocol": "anthropic", "base_url": "http://shared.invalid/v1"},
}
UNLIMITED = {"requests_per_minute": 0}
LANES = dict.fromkeys(("sim:fast", "sim:slow", "sim:judge"), UNLIMITED)


class Parts:
    """One scheduler, the leader. Its lanes are unlimited until a test says otherwise."""

    def __init__(self, redis: Redis, *, teams: Mapping[str, float] | None = None, **bounds: float) -> None:
        self.redis, self.clock, self.keys = redis, ManualClock(), Keys("test")
        self.settings = Settings.model_validate(
            {
                "redis": {"deployment": "test"},
                "connections": CONNECTIONS,
                "lanes": LANES,
                "teams": {team: {"weight": weight} for team, weight in (teams or {}).items()},
                "scheduler": bounds,
            }
        )
        self.runs, self.lanes = Runs(redis, self.keys, 60_000), Lanes(redis, self.keys)
        self.inbox, self.outbox = Inbox(redis, self.keys), Outbox(redis, self.keys)
        self.attempts, self.leases = Attempts(self.keys), Leases(redis, self.keys)
        self.workers = Workers(self.keys)
        self.backlog, self.capacity, self.mailbox = Backlog(), Capacity(), Mailbox()
        self.leader = Leader(self.lease("me"), LEADER_LEASE_MS)
        self.sharing = LaneSharing(Scopes(redis, self.keys), self.settings)
        self.registry = LaneRegistry(self.lanes, self.settings, self.sharing)
        self.feeder = Feeder(self.runs, self.backlog, self.registry, self.clock)
        self.loader = RunLoader(redis, self.keys, self.runs, self.backlog, self.feeder)
        self.receiver = Receiver(
            self.inbox,
            self.runs,
            self.backlog,
            self.feeder,
            self.registry,
            self.leader,
            self.clock,
            self.settings,
        )
        self.dispatcher = Dispatcher(self.lanes, self.backlog, self.capacity, self.mailbox, self.settings)
        self.recoverer = Recoverer(
            redis, self.attempts, self.leases, self.workers, self.loader, WORKER_TIMEOUT_MS
        )
        self.wakeups = Wakeups(redis, self.keys)
        self.leader.tick(self.clock.monotonic_ms(), self.now_ms)

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    def lease(self, identity: str) -> LeaderLease:
        return LeaderLease(self.redis, self.keys, identity, LEADER_LEASE_MS)

    def moment(self) -> Moment:
        """Now, in the term of this leader."""
        return Moment(self.leader.epoch, self.clock.monotonic_ms(), self.now_ms, self.now_ms)

    def depose(self) -> int:
        """Another scheduler leads from now on; its epoch."""
        self.redis.hset(self.keys.leader, "until_ms", "0")
        return self.lease("another").acquire(self.now_ms).epoch

    def spec(
        self,
        rows: int,
        *,
        team: str = "search",
        run: str = "r1",
        model: str | Sequence[str] = "sim:fast",
        judges: Sequence[str] = (),
        page_rows: int = 100,
        **more: Any,
    ) -> RunSpec:
        return RunSpec.model_validate(
            {
                "run": run,
                "team": team,
                "name": run,
                "prompts": ((Message(role="user", content="{{ q }}"),),),
                "models": (model,) if isinstance(model, str) else tuple(model),
                "evaluators": tuple(
                    Judge(name=f"judge{n}", model=judge, template="{{ output }}", choices={"yes": 1.0})
                    for n, judge in enumerate(judges)
                ),
                "rows": rows,
                "page_rows": page_rows,
                "submitted_ms": self.now_ms,
            }
            | more
        )

    def upload(self, spec: RunSpec, rows: Sequence[Mapping[str, Any]]) -> RunRef:
        """Write a run's rows and its spec as its client does."""
        ref = RunRef(spec.team, spec.run)
        content, numbering = [dict(row) for row in rows], Numbering(spec.session_field)
        size = spec.page_rows
        pages = (content[at : at + size] for at in range(0, len(content), size))
        self.outbox.upload(ref, numbering.watch(pages))
        self.outbox.note(ref, numbering.fields(size))
        self.outbox.submit(spec)
        return ref

    def admit(self, rows: int | Sequence[Mapping[str, Any]], **spec: Any) -> ActiveRun:
        """An admitted run in the backlog; nothing of it has been fed."""
        content = [{"q": n} for n in range(rows)] if isinstance(rows, int) else rows
        made = self.spec(len(content), **spec)
        ref = self.upload(made, content)
        self.redis.delete(self.keys.inbox(ref.team))
        lanes = tuple(self.registry.lane_of(judge.model) for judge in made.evals)
        session_lanes = tuple(self.registry.lane_of(judge.model) for judge in made.session_evals)
        plan = Plan(spec=made, eval_lanes=lanes, session_lanes=session_lanes)
        for lane in (*lanes, *session_lanes):
            self.registry.ensure(lane)
        self.runs.admit(plan, self.leader.epoch, self.now_ms)
        run = ActiveRun(ref, plan)
        self.backlog.add_run(run)
        return run

    def feed_all(self) -> None:
        """Feed until no run wants more."""
        while self.feeder.wait_ms(self.clock.monotonic_ms()) is not None:
            self.clock.advance(0.05)
            self.feeder.tick(self.moment())

    def queued(self, ref: RunRef, lane: str) -> list[str]:
        """Entries of a run's fresh queue on a lane."""
        return [entry.decode() for entry in self.redis.lrange(self.keys.fresh(ref, lane), 0, -1)]

    def state(self, ref: RunRef) -> dict[str, str]:
        return {k.decode(): v.decode() for k, v in self.redis.hgetall(self.keys.state(ref)).items()}
