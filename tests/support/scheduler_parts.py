"""The parts of a scheduler under a manual clock, wired as in its service; tests can use each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from redis import Redis

from fairlane.config.settings import Settings
from fairlane.core.clock import ManualClock
from fairlane.datasets.sessions import Numbering
from fairlane.model.choices import Message
from fairlane.model.evaluators import Judge
from fairlane.model.job import Attempt
from fairlane.model.run import Plan, RunRef, RunSpec
from fairlane.store.keys import Keys
from fairlane.store.write.attempts import Attempts
from fairlane.store.write.lanes.lanes import Lanes
from fairlane.store.write.leader import Leader, LeaderLease, Wakeups
from fairlane.store.write.leases import Leases
from fairlane.store.write.permits import Offer
from fairlane.store.write.runs.inbox import Inbox, Outbox
from fairlane.store.write.runs.runs import Runs, bounds_of
from fairlane.store.write.scopes import Scopes
from fairlane.store.write.workers import Workers
from fairlane_scheduler.dispatch.dispatcher import Dispatcher
from fairlane_scheduler.dispatch.slots import Capacity, TeamShares
from fairlane_scheduler.feed.feeder import Feeder
from fairlane_scheduler.feed.run_loader import RunLoader
from fairlane_scheduler.intake.admission import Admission, PayloadLimits
from fairlane_scheduler.intake.receiver import Receiver
from fairlane_scheduler.intake.run_requests import RunRequests
from fairlane_scheduler.lanes.registry import LaneRegistry
from fairlane_scheduler.lanes.sharing import LaneSharing
from fairlane_scheduler.state.backlog import ActiveRun, Backlog
from fairlane_scheduler.state.server_time import Moment
from fairlane_scheduler.upkeep.recoverer import Recoverer
from tests.support.stand_ins import CollectingPublisher

LEADER_LEASE_MS = 3000
LEASE_MS = 15_000
WORKER_TIMEOUT_MS = 5000
CONNECTIONS = {
    "sim": {"protocol": "openai", "base_url": "http://sim.invalid/v1"},
    "shared": {"protocol": "anthropic", "base_url": "http://shared.invalid/v1", "lane_scope": "connection"},
}
UNLIMITED = {"requests_per_minute": 0}
LANES = dict.fromkeys(("sim:fast", "sim:slow", "sim:judge"), UNLIMITED)


class Parts:
    """One scheduler, the leader. Its lanes and a run's first calls have no limits until a test sets them."""

    def __init__(
        self,
        redis: Redis,
        *,
        teams: Mapping[str, float] | None = None,
        pool: Any = None,
        **bounds: float,
    ) -> None:
        self.redis, self.clock, self.keys = redis, ManualClock(), Keys("test")
        self.settings = Settings.model_validate(
            {
                "redis": {"deployment": "test"},
                "connections": CONNECTIONS,
                "lanes": LANES,
                "teams": {team: {"weight": weight} for team, weight in (teams or {}).items()},
                "scheduler": {"first_calls": 0, **bounds},
            }
        )
        self.runs, self.lanes = Runs(redis, self.keys, 60_000), Lanes(redis, self.keys)
        self.inbox, self.outbox = Inbox(redis, self.keys), Outbox(redis, self.keys)
        self.attempts, self.leases = Attempts(self.keys), Leases(redis, self.keys)
        self.workers = Workers(self.keys)
        self.backlog, self.capacity, self.mailbox = Backlog(), Capacity(), CollectingPublisher()
        self.leader = Leader(self.lease("me"), LEADER_LEASE_MS)
        self.sharing = LaneSharing(Scopes(redis, self.keys), self.settings.connections)
        self.registry = LaneRegistry(self.lanes, self.sharing, self.settings)
        self.feeder = Feeder(self.runs, self.backlog, self.registry, self.clock, self.settings, pool=pool)
        self.loader = RunLoader(redis, self.keys, self.runs, self.backlog, self.feeder, self.clock)
        limits = PayloadLimits(self.runs, self.backlog, self.settings.scheduler.limits)
        self.admission = Admission(self.runs, self.backlog, self.registry, limits, self.settings, pool)
        self.requests = RunRequests(self.runs, self.backlog, self.loader, self.feeder, self.registry, limits)
        self.receiver = Receiver(
            self.inbox, self.admission, self.requests, self.leader, self.clock, self.settings.teams
        )
        self.team_shares = TeamShares(self.settings.teams)
        self.dispatcher = Dispatcher(
            self.lanes,
            self.backlog,
            self.capacity,
            self.team_shares,
            self.mailbox,
            self.settings,
        )
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
        """The present time, with this leader's epoch."""
        return Moment(self.leader.epoch, self.clock.monotonic_ms(), self.now_ms, self.now_ms)

    def depose(self) -> int:
        """Make another scheduler the leader; returns its epoch."""
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
        """Write a run's rows and its spec, as a client does."""
        ref = RunRef(spec.team, spec.run)
        content, numbering = [dict(row) for row in rows], Numbering(spec.session_field)
        size = spec.page_rows
        pages = (content[at : at + size] for at in range(0, len(content), size))
        self.outbox.upload(ref, numbering.watch(pages))
        self.outbox.note(ref, numbering.fields(size))
        self.outbox.submit(spec)
        return ref

    def admit(self, rows: int | Sequence[Mapping[str, Any]], **spec: Any) -> ActiveRun:
        """An admitted run in the backlog; none of its items is fed."""
        content = [{"q": n} for n in range(rows)] if isinstance(rows, int) else rows
        made = self.spec(len(content), **spec)
        ref = self.upload(made, content)
        self.redis.delete(self.keys.inbox(ref.team))
        lanes = tuple(self.registry.lane_of(judge.model) for judge in made.evals)
        session_lanes = tuple(self.registry.lane_of(judge.model) for judge in made.session_evals)
        plan = Plan(spec=made, eval_lanes=lanes, session_lanes=session_lanes)
        for lane in (*lanes, *session_lanes):
            self.registry.ensure(lane)
        bounds = bounds_of(plan, self.settings.prices, self.settings.scheduler.max_concurrent)
        self.runs.admit(plan, self.leader.epoch, self.now_ms, bounds=bounds)
        run = ActiveRun(ref, plan)
        self.backlog.add_run(run)
        return run

    def feed_all(self) -> None:
        """Feed until no run takes more items."""
        while self.feeder.wait_ms(self.clock.monotonic_ms()) is not None:
            self.clock.advance(0.05)
            self.feeder.tick(self.moment())

    def permits(self, ref: RunRef, count: int, lane: str = "sim:fast") -> list[Attempt]:
        """Permits for jobs that a run has queued on a lane. Fails if the lane grants fewer than ``count``."""
        grant = self.lanes.grant(
            lane,
            self.leader.epoch,
            [Offer(ref, count)],
            room=count,
            max_in_flight=10**6,
            lease_ms=LEASE_MS,
            now_ms=self.now_ms,
        )
        assert grant is not None
        attempts = [Attempt(ref.run, ref.team, permit.job, permit.number, lane) for permit in grant.permits]
        assert len(attempts) == count
        return attempts

    def queued(self, ref: RunRef, lane: str) -> list[str]:
        """The entries of a run's queue of fresh jobs on a lane."""
        return [entry.decode() for entry in self.redis.lrange(self.keys.fresh(ref, lane), 0, -1)]

    def state(self, ref: RunRef) -> dict[str, str]:
        return {k.decode(): v.decode() for k, v in self.redis.hgetall(self.keys.state(ref)).items()}
