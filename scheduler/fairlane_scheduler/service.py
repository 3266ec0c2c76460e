"""A scheduler process: everything wired in one place, and the one tick that drives it."""

from __future__ import annotations

import json
from collections.abc import Collection

from redis.exceptions import ResponseError

from fairlane.admission.memory import LaneMemory
from fairlane.clock import Clock
from fairlane.events import Event
from fairlane.logs import get_logger
from fairlane.settings import Settings
from fairlane.store.attempts import Attempts
from fairlane.store.audit import Auditor
from fairlane.store.budgets import Budgets
from fairlane.store.connect import RedisClient
from fairlane.store.history import History
from fairlane.store.inbox import Inbox
from fairlane.store.keys import Keys
from fairlane.store.leader import LeaderLease
from fairlane.store.leases import Leases
from fairlane.store.registry import Registry
from fairlane.store.runs import OUT_OF_BUDGET, TIMED_OUT
from fairlane.store.scopes import Scopes
from fairlane.store.script import load_all
from fairlane_scheduler.backlog import Backlog
from fairlane_scheduler.budgets import BudgetWatch
from fairlane_scheduler.capacity import Capacity
from fairlane_scheduler.dispatcher import Dispatcher, Handover
from fairlane_scheduler.feeder import Feeder
from fairlane_scheduler.historian import Historian
from fairlane_scheduler.janitor import Janitor
from fairlane_scheduler.lane_registry import LaneRegistry
from fairlane_scheduler.lane_sharing import LaneSharing
from fairlane_scheduler.leader import Leader, NotLeader
from fairlane_scheduler.monitoring.measured import MeasuredLanes, MeasuredRuns, MeasuredWorkers
from fairlane_scheduler.monitoring.metrics import SchedulerMetrics
from fairlane_scheduler.receiver import Receiver
from fairlane_scheduler.recoverer import Recoverer
from fairlane_scheduler.run_loader import RunLoader
from fairlane_scheduler.server_time import Moment, RedisTime, ServerTime
from fairlane_scheduler.sources import Sources
from fairlane_scheduler.wakeups import Marks, Wakeups

HOUSEKEEPING_MS = 1000  # what a lost wake-up can cost at most
PROMOTED_AT_ONCE = 500
REMEMBER_MS = 5000  # how old what the leader remembers of lanes may be

log = get_logger("scheduler")


class Scheduler:
    """Ticks of one scheduler; `runner` waits between them. Keeps nothing that it cannot reload from Redis,
    but for a copy of what its lanes have learned.

    ``clock`` measures intervals; ``server_time`` is what decisions are made by, the Redis server's unless a
    simulation gives another.
    """

    def __init__(
        self,
        redis: RedisClient,
        settings: Settings,
        clock: Clock,
        identity: str,
        publisher: Handover,
        server_time: ServerTime | None = None,
        metrics: SchedulerMetrics | None = None,
    ) -> None:
        self._redis, self._settings, self._clock = redis, settings, clock
        self._time = server_time or RedisTime(redis, clock)
        self._keys = keys = Keys(settings.redis.deployment)
        bounds = settings.scheduler
        lease_ms = round(bounds.leader_lease_seconds * 1000)
        self._worker_timeout_ms = round(bounds.worker_timeout_seconds * 1000)
        auditor = Auditor("scheduler", identity, settings.audit.keep)
        self._metrics = metrics = metrics or SchedulerMetrics(settings)
        self._lanes, self._memory = MeasuredLanes(redis, keys, auditor, metrics), LaneMemory(redis, keys)
        self._runs = runs = MeasuredRuns(
            redis, keys, round(bounds.finished_ttl_seconds * 1000), auditor, metrics
        )
        self._workers, self._inbox = MeasuredWorkers(keys, metrics), Inbox(redis, keys)
        self._lease = LeaderLease(redis, keys, identity, lease_ms)
        self.leader = Leader(self._lease, lease_ms)
        self._backlog, self._capacity = Backlog(), Capacity()
        self._sharing = LaneSharing(Scopes(redis, keys, auditor), settings)
        self._registry = LaneRegistry(self._lanes, settings, self._sharing)
        self._made_teams = Registry(redis, keys)
        self._budgets = BudgetWatch(Budgets(redis, keys, auditor), settings, self._sharing.carrier)
        self._wakeups = Wakeups(redis, keys)
        self._feeder = Feeder(runs, self._backlog, self._registry, clock, bounds.limits.row_bytes)
        self._loader = RunLoader(redis, keys, runs, self._backlog, self._feeder)
        self._receiver = Receiver(
            self._inbox, runs, self._backlog, self._feeder, self._registry, self.leader, clock, settings
        )
        self._sources = Sources(runs, self._backlog)
        self._dispatcher = Dispatcher(self._lanes, self._backlog, self._capacity, publisher, settings)
        self._recoverer = Recoverer(
            redis, Attempts(keys), Leases(redis, keys), self._workers, self._loader, self._worker_timeout_ms
        )
        self._janitor = Janitor(redis, keys, self._inbox)
        self._historian = Historian(self._lanes, History(redis, keys), self._backlog.depth)
        self._publisher = publisher
        self._housekeeping_ms = self._remember_ms = 0
        self._server_id: str | None = None
        self._heard_since_ms = 0

    @property
    def wake_channel(self) -> str:
        """Whatever is published here is a reason to `tick` at once."""
        return self._keys.wake

    def store_came_back(self) -> None:
        """The connection was lost: bid anew, and so read everything anew."""
        self.leader.deposed()

    def tick(self, teams: Collection[str] | None = None) -> int:
        """One pass over everything that is due. Returns milliseconds until the next is, unless woken before.

        ``teams`` are those whose inbox was announced; ``None`` looks into all of them.
        """
        now = self._clock.monotonic_ms()
        if self.leader.tick(now, self._time.argument()):
            self._begin_term()
        if not self.leader.leads:
            return self.leader.wait_ms(now)
        moment = Moment(self.leader.epoch, now, self._time.now_ms(), self._time.argument())
        try:
            waits = self._lead(moment, teams)
        except NotLeader:
            log.warning(Event.LEADER_LOST, epoch=moment.epoch)
            self.leader.deposed()
            return 0
        return max(0, min([self.leader.wait_ms(now), *(wait for wait in waits if wait is not None)]))

    def resign(self) -> None:
        """Stop leading, at once."""
        self.leader.resign()
        self._publisher.close()

    def _begin_term(self) -> None:
        """Forget what was known: another may have led."""
        load_all(self._redis)
        for lane in self._memory.restore(self._time.argument()):
            log.warning(Event.LANE_RESTORED, lane=lane)
        self._sharing.reload()
        self._registry.reload()
        self._budgets.reload()
        self._drain_after_restart()
        self._publisher.close()
        self._loader.forget_all()
        self._receiver.forget_all()
        self._sources.forget_all()
        self._dispatcher.begin_term(self._registry.names())
        self._historian.forget_all()
        self._housekeeping_ms = 0
        self._publish_catalog()
        self._recoverer.hold_off(self._clock.monotonic_ms())

    def _lead(self, moment: Moment, teams: Collection[str] | None) -> list[int | None]:
        now = moment.monotonic_ms
        if now >= self._housekeeping_ms:
            more = self._housekeep(moment)
            self._housekeeping_ms, teams = now + (0 if more else HOUSEKEEPING_MS), None
        inbox_wait = self._receiver.tick(teams, moment)
        recover_wait = self._recoverer.tick(moment)
        marks = self._look_at_marks(moment)
        due_wait = self._promote(marks.due_ms, moment)
        source_wait = self._sources.tick(moment, self._registry.names)
        self._feeder.tick(moment)
        ask_wait = self._dispatcher.tick(moment)
        end_wait = self._end_early(moment)
        self._janitor.tick(now)
        return [
            self._housekeeping_ms - now,
            inbox_wait,
            recover_wait,
            due_wait,
            0 if marks.more else None,
            self._feeder.wait_ms(now),
            ask_wait,
            end_wait,
            source_wait,
        ]

    def _housekeep(self, moment: Moment) -> bool:
        """Look at what may have changed unannounced; true where there is more to look at."""
        more = self._loader.refresh()
        if moment.monotonic_ms >= self._remember_ms:
            self._memory.refresh(self._registry.names())
            self._remember_ms = moment.monotonic_ms + REMEMBER_MS
            weight, budgets = self._dispatcher.claims.weight, self._budgets.latest
            self._metrics.note(self._backlog, self._registry.names(), weight, budgets)
        self._dispatcher.claims.update(self._made_teams.all())
        self._look_at_workers(moment)
        self._budgets.tick(moment.server_ms)
        self._historian.tick(moment, self._registry.names)
        return more

    def _look_at_workers(self, moment: Moment) -> None:
        oldest_ms = max(self._heard_since_ms, moment.server_ms - self._worker_timeout_ms)
        alive = [b for b in self._workers.beats(self._redis) if b.beat_ms >= oldest_ms]
        self._capacity.update(alive)
        if self._sharing.look(alive, self._lanes.names, moment):
            self._registry.reload()
            self._budgets.reload()
            self._publish_catalog()
        self._dispatcher.wake_all()

    def _promote(self, due_ms: int | None, moment: Moment) -> int | None:
        """Queue the jobs whose back-off is over; milliseconds until the next one's is."""
        if due_ms is None or due_ms > moment.server_ms:
            return None if due_ms is None else due_ms - moment.server_ms
        due = self._runs.delayed(moment.server_ms, PROMOTED_AT_ONCE)
        for job in due:
            if self._runs.promote(job, moment.argument):
                number, run = int(job.entry.partition(":")[0]), self._backlog.get(job.ref)
                fields = {"run": job.ref.run, "job": number, "team": job.ref.team}
                labels = run.plan.spec.labels(number) if run else {}
                depth = self._backlog.depth(job.lane) + 1
                log.info(Event.QUEUEING, **fields, **labels, lane=job.lane, queue_depth=depth)
        return 0

    def _end_early(self, moment: Moment) -> int | None:
        """End runs whose time is over, or whose budget is; milliseconds until the next one's time is."""
        waits: list[int] = []
        spent, self._dispatcher.spent = set(self._dispatcher.spent), []
        for run in self._backlog.runs():
            left_ms = run.left_ms(moment.server_ms)
            if run.ref in spent or (left_ms is not None and left_ms <= 0):
                ending = OUT_OF_BUDGET if run.ref in spent else TIMED_OUT
                left = self._runs.end(run.ref, self._registry.names(), ending, moment.epoch, moment.argument)
                self._loader.forget(run.ref)
                told = {"run": run.ref.run, "team": run.ref.team, "jobs": left, "reason": ending.reason}
                log.warning(Event.RUN_ENDED_EARLY, **told)
            elif left_ms is not None:
                waits.append(left_ms)
        return min(waits, default=None)

    def _look_at_marks(self, moment: Moment) -> Marks:
        marks = self._wakeups.take(moment.epoch)
        if marks.workers:
            self._look_at_workers(moment)
        for lane, ref in marks.work:
            if lane:
                self._backlog.add(lane, ref)
            elif (run := self._backlog.get(ref)) is not None:
                run.its_turn = True
        for lane in marks.lanes:
            self._dispatcher.wake(lane)
        return marks

    def _drain_after_restart(self) -> None:
        """A server that restarted may have forgotten its last second of permits: let nothing burst.

        Nor can it tell which workers have found it again: each counts once it beats anew.
        """
        server = self._server_identity()
        known = self._lease.server() or self._server_id
        if server is not None and known not in (None, server):
            for lane in self._lanes.names():
                self._lanes.drain(lane, self._time.argument())
            self._heard_since_ms = self._time.now_ms()
        if server is not None:
            self._lease.note_server(server)
        self._server_id = server

    def _server_identity(self) -> str | None:
        try:
            return str(self._redis.info("server").get("run_id"))
        except ResponseError:  # an imitation of Redis, or an account that may not ask
            return None

    def _publish_catalog(self) -> None:
        known = {
            name: {
                "protocol": connection.protocol,
                "scope": connection.scope,
                "lanes": self._sharing.published(name),
            }
            for name, connection in self._settings.connections.items()
        }
        self._redis.set(self._keys.catalog, json.dumps({"connections": known}))
