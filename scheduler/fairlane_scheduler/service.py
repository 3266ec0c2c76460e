"""A scheduler process: creates and connects all parts, and runs them in one tick."""

from collections.abc import Collection
from contextlib import suppress
from uuid import uuid4

from redis.exceptions import ResponseError

from fairlane.config.settings import Settings
from fairlane.core.clock import Clock
from fairlane.core.events import Event
from fairlane.sandbox.pool import Pool
from fairlane.store.connection.connect import RedisClient
from fairlane.store.connection.server_states import RETYPED, refusing_state
from fairlane.store.functions import keep_functions
from fairlane.store.keys import Keys
from fairlane.store.read.mistyped import Mistyped, mistyped
from fairlane.store.run_queries import RunStates
from fairlane.store.verbs import load_all
from fairlane.store.write.attempts import Attempts
from fairlane.store.write.audit import Auditor
from fairlane.store.write.budgets import Budgets
from fairlane.store.write.lanes.lane_history import History
from fairlane.store.write.lanes.lane_memory import LaneMemory
from fairlane.store.write.lanes.lanes import Lanes
from fairlane.store.write.leader import Leader, LeaderLease, Marks, NotLeader, Wakeups
from fairlane.store.write.leases import Leases
from fairlane.store.write.registry import Registry
from fairlane.store.write.runs.archive_stub import ArchiveStubs
from fairlane.store.write.runs.inbox import Inbox
from fairlane.store.write.runs.lost_jobs import LostJobs
from fairlane.store.write.runs.runs import Runs
from fairlane.store.write.runs.uncalled_jobs import UncalledJobs
from fairlane.store.write.scopes import Scopes
from fairlane.store.write.workers import Workers
from fairlane.telemetry.logs import get_logger
from fairlane_scheduler.dispatch.dispatcher import Dispatcher
from fairlane_scheduler.dispatch.publisher import Handover
from fairlane_scheduler.dispatch.slots import Capacity, TeamShares
from fairlane_scheduler.feed.feeder import Feeder
from fairlane_scheduler.feed.run_loader import RunLoader
from fairlane_scheduler.feed.tokenizers import Tokenizers
from fairlane_scheduler.intake.admission import Admission, PayloadLimits
from fairlane_scheduler.intake.receiver import Receiver
from fairlane_scheduler.intake.run_requests import RunRequests
from fairlane_scheduler.intake.sources import Sources
from fairlane_scheduler.lanes.registry import LaneRegistry, UnusedLanes
from fairlane_scheduler.lanes.sharing import LaneSharing
from fairlane_scheduler.monitoring.metrics import SchedulerMetrics
from fairlane_scheduler.state.backlog import REFUSED, Backlog
from fairlane_scheduler.state.server_time import Moment, RedisRestarts, RedisTime, ServerTime
from fairlane_scheduler.upkeep.budgets import BudgetWatch
from fairlane_scheduler.upkeep.deadlines import DelayedJobs, EarlyEnds
from fairlane_scheduler.upkeep.janitor import Janitor
from fairlane_scheduler.upkeep.lane_sampler import LaneSampler
from fairlane_scheduler.upkeep.lost_state import LostState
from fairlane_scheduler.upkeep.outages import Outages
from fairlane_scheduler.upkeep.recoverer import Recoverer
from fairlane_scheduler.upkeep.run_heartbeat import EVERY_MS, RunHeartbeat
from fairlane_scheduler.upkeep.shared_keys import SharedKeys
from fairlane_scheduler.upkeep.uncalled import Refusals, Uncalled

SHARED_KEYS_MS = 10_000  # between looks at the types of shared keys: about twenty commands
HOUSEKEEPING_MS = 1000  # between looks for missed changes: a lost wake-up delays work by no more
REMEMBER_MS = 5000  # how old the leader's copy of learned limits may be

log = get_logger("scheduler")


class Scheduler:
    """One scheduler's ticks; `runner` waits between them.

    Redis has all its state, except a copy of limits that lanes have learned. ``clock`` measures intervals.
    ``server_time`` is the time of decisions: the Redis server's, or a simulation's.
    Without ``metrics`` it counts nothing. Without ``tokenizers`` it bounds prompts by their bytes.
    Without a ``pool`` it decodes large pages of rows itself.
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
        tokenizers: Tokenizers | None = None,
        pool: Pool | None = None,
    ) -> None:
        section = settings.scheduler
        lease_ms = round(section.leader_lease_seconds * 1000)
        self._worker_timeout_ms = round(section.worker_timeout_seconds * 1000)
        self._redis = redis
        self._clock = clock
        self._keys = keys = Keys(settings.redis.deployment)
        self.wake_channel = keys.wake
        """The pub/sub channel: a message means that `tick` is due at once."""
        self._time = server_time or RedisTime(redis, keys, clock)
        self._metrics = metrics
        auditor = Auditor("scheduler", identity, settings.audit.keep)

        # Redis
        finished_ttl_ms = round(section.finished_ttl_seconds * 1000)
        runs = Runs(redis, keys, finished_ttl_ms, auditor)
        self._lanes = lanes = Lanes(redis, keys, auditor)
        self._workers = Workers(keys)
        self._shared_keys = SharedKeys(redis, keys)
        self._memory = LaneMemory(redis, keys)
        self._created_teams = Registry(redis, keys)
        inbox = Inbox(redis, keys)
        lease = LeaderLease(redis, keys, identity, lease_ms, token=uuid4().hex)

        # State
        self.leader = Leader(lease, lease_ms)
        self._restarts = RedisRestarts(lease, lanes, self._time)
        self._wakeups = Wakeups(redis, keys)
        self._backlog = backlog = Backlog()
        self._capacity = Capacity()

        # Lanes
        self._sharing = LaneSharing(Scopes(redis, keys, auditor), settings.connections)
        self._registry = LaneRegistry(lanes, self._sharing, settings)

        # Feed and intake
        self._pool = pool
        self._feeder = Feeder(runs, backlog, self._registry, clock, settings, tokenizers, pool)
        self._loader = RunLoader(redis, keys, runs, backlog, self._feeder, clock)
        limits = PayloadLimits(runs, backlog, section.limits)
        admission = Admission(runs, backlog, self._registry, limits, settings, pool)
        requests = RunRequests(runs, backlog, self._loader, self._feeder, self._registry, limits)
        on_decided = metrics.decided if metrics else None
        self._receiver = Receiver(inbox, admission, requests, self.leader, clock, settings.teams, on_decided)
        self._sources = Sources(runs, backlog, section.limits.row_bytes)

        # Dispatch
        self._team_shares = TeamShares(settings.teams)
        self._publisher = publisher
        self._dispatcher = Dispatcher(
            lanes,
            backlog,
            self._capacity,
            self._team_shares,
            publisher,
            settings,
            metrics.asked if metrics else None,
        )

        # Upkeep
        uncalled = Uncalled(UncalledJobs(redis, keys), backlog, self._loader)
        self._outages = Outages(lanes, backlog, uncalled)
        self._delayed_jobs = DelayedJobs(runs, backlog, self._outages)
        self._refusals = Refusals(RunStates(redis, keys), backlog, uncalled)
        self._early_ends = EarlyEnds(runs, backlog, self._loader, self._registry.names)
        self._recoverer = Recoverer(
            redis,
            Attempts(keys),
            Leases(redis, keys),
            self._workers,
            self._loader,
            self._worker_timeout_ms,
            metrics.lost_worker if metrics else None,
        )
        lease_ms = round(section.lease_seconds * 1000)
        self._lost_state = LostState(LostJobs(redis, keys), runs, lanes, backlog, self._loader, lease_ms)
        self._budgets = BudgetWatch(
            Budgets(redis, keys, auditor), settings.teams, self._sharing.canonical_lane
        )
        self._janitor = Janitor(inbox, clock, backlog, ArchiveStubs(redis, keys))
        self._lane_sampler = LaneSampler(lanes, History(redis, keys), backlog.depth)
        self._unused_lanes = UnusedLanes(lanes, self._registry, backlog, self._forget_lane)
        self._heartbeat = RunHeartbeat(RunStates(redis, keys), backlog, self._dispatcher.reason_of)
        self._housekeeping_ms = self._shared_keys_ms = 0
        self._heartbeat_ms = 0
        self._remember_ms = 0
        self._elected = 0  # the last epoch whose election was logged

    def mistyped(self) -> list[Mistyped]:
        """Keys whose type is wrong: somebody has overwritten them. Raises `RedisError`."""
        return mistyped(self._redis, self._keys)

    def store_came_back(self) -> None:
        """Bid again after a lost connection: the new term reads everything again."""
        self.leader.deposed()

    def relieve(self) -> None:
        """While Redis is full, only act on requests that need no memory: cancel and pause.

        Raises `RedisError`.
        """
        self.leader.deposed()  # the next tick begins a term and reads everything again
        now = self._clock.monotonic_ms()
        self.leader.tick(now, self._time.argument())
        if self.leader.leads:
            moment = Moment(self.leader.epoch, now, self._time.now_ms(), self._time.argument())
            with suppress(NotLeader):
                self._receiver.relieve(moment)

    def tick(self, teams: Collection[str] | None = None) -> int:
        """Do everything that is due. Returns milliseconds until the next tick, unless a wake-up comes before.

        ``teams``: whose inboxes were announced; ``None``: look into all inboxes.
        """
        try:
            return self._pass(teams)
        except ResponseError as error:
            retyped = refusing_state(error) is RETYPED
            if not retyped or not (self._loader.set_aside() or self._shared_keys.discard(all_lanes=True)):
                raise
            self.leader.deposed()  # the next tick reads everything else again
            return 0

    def _pass(self, teams: Collection[str] | None) -> int:
        now = self._clock.monotonic_ms()
        if self.leader.leads and now >= self._shared_keys_ms:
            self._shared_keys_ms = now + SHARED_KEYS_MS
            if self._shared_keys.discard(all_lanes=False):
                self.leader.deposed()
        try:
            self._bid(now)
            if not self.leader.leads:
                return self.leader.wait_ms(now)
            moment = Moment(self.leader.epoch, now, self._time.now_ms(), self._time.argument())
            waits = self._lead(moment, teams)
        except NotLeader:
            log.warning(Event.LEADER_LOST, epoch=self.leader.epoch)
            self.leader.deposed()
            return 0
        return max(0, min([self.leader.wait_ms(now), *(wait for wait in waits if wait is not None)]))

    def resign(self) -> None:
        """Stop leading at once, and end the child processes."""
        if self._pool is not None:
            self._pool.close()
        self.leader.resign()
        self._publisher.close()

    def _bid(self, now: int) -> None:
        """Bid for leadership if it is time; a bid that succeeds begins a term."""
        before, won = self.leader.epoch, self.leader.tick(now, self._time.argument())
        if stepped_ms := self.leader.take_stepped_ms():
            log.warning(Event.CLOCK_STEPPED, back_s=stepped_ms / 1000)
        # After a failed pass it reads everything again in the same term, which is not logged.
        if self.leader.epoch != before and not (won and self.leader.epoch == self._elected):
            self._elected = self.leader.epoch
            log.info(Event.LEADER_ELECTED if won else Event.LEADER_LOST, epoch=self.leader.epoch or before)
        if won:
            self._begin_term()

    def _stay(self) -> None:
        """Renew the lease if it is time, between two parts of a pass. Raises `NotLeader`.

        A term's first pass reads everything, which may take longer than a lease. Without this, two schedulers
        would take over from each other without end.
        """
        self.leader.renew(self._clock.monotonic_ms(), self._time.argument())

    def _begin_term(self) -> None:
        """Read everything again: another scheduler may have led."""
        load_all(self._redis)
        keep_functions(self._redis)
        self._stay()
        for lane in self._memory.restore(self._time.argument()):
            log.warning(Event.LANE_RESTORED, lane=lane)
        for reload in (
            self._sharing.reload,
            self._registry.reload,
            self._budgets.reload,
            self._restarts.look,
        ):
            self._stay()
            reload()
        self._stay()
        self._publisher.close()
        self._loader.forget_all()
        self._receiver.forget_all()
        self._sources.forget_all()
        self._dispatcher.begin_term(self._registry.names())
        self._lane_sampler.forget_all()
        self._unused_lanes.forget_all()
        self._housekeeping_ms = 0
        self._heartbeat_ms = self._clock.monotonic_ms() + EVERY_MS
        self._sharing.publish()
        self._recoverer.wait_for_workers(self._clock.monotonic_ms())

    def _lead(self, moment: Moment, teams: Collection[str] | None) -> list[int | None]:
        """Do a leader's part of a tick. Returns for how many milliseconds each part can wait."""
        now = moment.monotonic_ms
        housekeeps = now >= self._housekeeping_ms
        self._stay()
        if housekeeps:
            more = self._housekeep(moment)
            self._housekeeping_ms = now + (0 if more else HOUSEKEEPING_MS)
            teams = None
        self._stay()
        inbox_wait = self._receiver.tick(teams, moment)
        self._stay()
        # Together with housekeeping while nothing is leased, so that an idle leader wakes up once a second.
        if now >= self._recoverer.due_ms or (housekeeps and self._recoverer.idle):
            self._recoverer.tick(moment)
        self._stay()
        marks = self._take_marks(moment)
        if overdue := self._backlog.overdue(marks.work, moment.server_ms):
            self._outages.look(overdue, moment)
        delayed_wait = None if marks.due_ms is None else self._delayed_jobs.tick(marks.due_ms, moment)
        source_wait = None
        if self._backlog.sourced or self._sources.readings:
            source_wait = self._sources.tick(moment, self._registry.names)
        self._stay()
        self._feeder.tick(moment)
        self._stay()
        ask_wait = self._dispatcher.tick(moment)
        self._stay()
        refused = bool(self._backlog.throttled_by(REFUSED)) and self._refusals.tick(moment)
        if now >= self._heartbeat_ms:
            self._heartbeat_ms = self._heartbeat.tick(moment)
        end_wait, spent = None, self._dispatcher.take_out_of_budget()
        if spent or self._backlog.has_deadlines or self._early_ends.left:
            end_wait = self._early_ends.tick(spent, moment)
        return [
            self._housekeeping_ms - now,
            inbox_wait,
            self._recoverer.due_ms - now,
            delayed_wait,
            0 if marks.more else None,
            self._feeder.wait_ms(now),
            0 if refused else ask_wait,
            end_wait,
            source_wait,
        ]

    def _housekeep(self, moment: Moment) -> bool:
        """Look for changes that nobody announced; true if there are more runs to load."""
        more = self._loader.refresh()
        self._stay()
        self._registry.restore(lane for lane, queue in self._backlog.lanes() if queue.depth)
        self._unused_lanes.tick(moment, all_loaded=self._loader.complete)
        more = self._outages.tick(moment) or more
        self._stay()
        if moment.monotonic_ms >= self._remember_ms:
            self._memory.refresh(self._registry.names())
            self._remember_ms = moment.monotonic_ms + REMEMBER_MS
            self._note_metrics()
        self._team_shares.update(self._created_teams.all())
        self._stay()
        self._update_workers(moment)
        self._stay()
        self._budgets.tick(moment.server_ms)
        self._lane_sampler.tick(moment, self._registry.names)
        self._stay()
        self._janitor.tick()
        self._stay()
        self._lost_state.tick(moment, self._registry.names, self._stay)
        return more

    def _forget_lane(self, lane: str) -> None:
        """Drop the state of a lane that was forgotten."""
        self._memory.forget(lane)
        self._dispatcher.forget(lane)
        self._lane_sampler.forget(lane)

    def _note_metrics(self) -> None:
        if self._metrics is not None:
            self._metrics.note(
                self._backlog,
                self._registry.names(),
                self._team_shares.weight,
                self._budgets.latest,
                self._dispatcher.reason_of,
            )

    def _update_workers(self, moment: Moment) -> None:
        """Count the live workers' slots, and act on credentials that they report."""
        oldest_ms = max(self._restarts.since_ms, moment.server_ms - self._worker_timeout_ms)
        alive = [beat for beat in self._workers.beats(self._redis) if beat.beat_ms >= oldest_ms]
        self._capacity.update(alive)
        self._registry.note_reported(name for beat in alive for name in beat.info.connections)
        if self._sharing.look(alive, self._lanes.names, moment):
            self._registry.reload()
            self._budgets.reload()
            self._sharing.publish()
        self._dispatcher.wake_all()

    def _take_marks(self, moment: Moment) -> Marks:
        """Wake what scripts have marked: workers, lanes and runs."""
        marks = self._wakeups.take(moment.epoch)
        if marks.workers:
            self._update_workers(moment)
        for lane, ref in marks.work:
            if lane:
                self._backlog.add(lane, ref)
            elif (run := self._backlog.get(ref)) is not None:
                run.may_feed_next = True
        for lane in marks.lanes:
            self._dispatcher.wake(lane)
        return marks
