"""A scheduler process: everything wired in one place, and the one tick that drives it."""

from __future__ import annotations

import json

from fairlane.admission.lanes import Lanes
from fairlane.clock import Clock
from fairlane.settings import Settings
from fairlane.store.attempts import Attempts
from fairlane.store.connect import RedisClient
from fairlane.store.inbox import Inbox
from fairlane.store.keys import Keys, RunRef
from fairlane.store.leader import LeaderLease
from fairlane.store.leases import Leases
from fairlane.store.runs import Runs
from fairlane.store.script import load_all
from fairlane.store.workers import Workers
from fairlane_scheduler.backlog import ActiveRun, Backlog
from fairlane_scheduler.capacity import Capacity
from fairlane_scheduler.dispatcher import Dispatcher, NotLeader
from fairlane_scheduler.feeder import Feeder
from fairlane_scheduler.janitor import Janitor
from fairlane_scheduler.lane_registry import LaneRegistry
from fairlane_scheduler.leader import Leader
from fairlane_scheduler.publisher import Publisher
from fairlane_scheduler.receiver import Receiver
from fairlane_scheduler.recoverer import Recoverer

HOUSEKEEPING_MS = 1000  # what a lost wake-up can cost at most
DIRTY_AT_ONCE = 1000


class Scheduler:
    """Ticks of one scheduler; `runner` waits between them. Keeps nothing that it cannot reload from Redis.

    ``server_now`` is what scripts take as the time: empty for the server's own clock, or a manual clock's
    milliseconds in tests.
    """

    def __init__(
        self, redis: RedisClient, settings: Settings, clock: Clock, identity: str, publisher: Publisher
    ) -> None:
        self._redis, self._settings, self._clock = redis, settings, clock
        self._keys = keys = Keys(settings.redis.deployment)
        bounds = settings.scheduler
        lease_ms = round(bounds.leader_lease_seconds * 1000)
        self._lanes = Lanes(redis, keys)
        self._runs = Runs(redis, keys, round(bounds.finished_ttl_seconds * 1000))
        self._workers = Workers(keys)
        self._inbox = Inbox(redis, keys)
        self._worker_timeout_ms = round(bounds.worker_timeout_seconds * 1000)
        self.leader = Leader(LeaderLease(redis, keys, identity, lease_ms), lease_ms)
        self._backlog, self._capacity = Backlog(), Capacity()
        self._registry = LaneRegistry(self._lanes, settings)
        self._feeder = Feeder(self._runs, self._backlog, self._registry)
        self._receiver = Receiver(self._inbox, self._runs, self._backlog, self._feeder, self._registry)
        self._dispatcher = Dispatcher(self._lanes, self._backlog, self._capacity, publisher, settings)
        self._recoverer = Recoverer(
            redis, Attempts(keys), Leases(redis, keys), self._workers, self._backlog, self._worker_timeout_ms
        )
        self._janitor = Janitor(redis, keys)
        self._publisher = publisher
        self._housekeeping_ms = 0
        self._server_id: str | None = None

    @property
    def wake_channel(self) -> str:
        return self._keys.wake

    def store_came_back(self) -> None:
        """The connection was lost: bid anew, and so read everything anew."""
        self.leader.deposed()

    def _reload(self) -> None:
        load_all(self._redis)
        self._registry.reload()
        self._drain_after_restart()
        self._publisher.close()
        for run in self._backlog.runs():
            self._forget(run.ref)
        self._housekeeping_ms = 0
        self._publish_catalog()
        self._recoverer.hold_off(self._clock.monotonic_ms())

    def tick(self, teams: set[str] | None = None) -> int:
        """One pass over everything that is due. Returns milliseconds until the next is, unless woken before.

        ``teams`` are those whose inbox was announced; ``None`` looks into all of them.
        """
        now = self._clock.monotonic_ms()
        if self.leader.tick(now, self._server_now()):
            self._reload()
        if not self.leader.leads:
            return self.leader.wait_ms(now)
        try:
            waits = self._lead(now, teams)
        except NotLeader:
            self.leader.deposed()
            return 0
        return min([self.leader.wait_ms(now), *(wait for wait in waits if wait is not None)])

    def resign(self) -> None:
        """Stop leading, at once."""
        self.leader.resign()
        self._publisher.close()

    def _lead(self, now: int, teams: set[str] | None) -> list[int | None]:
        epoch, server_now = self.leader.epoch, self._server_now()
        server_ms = self._server_ms()
        if now >= self._housekeeping_ms:
            self._housekeep(server_ms)
            self._housekeeping_ms, teams = now + HOUSEKEEPING_MS, None
        if teams is None or teams:
            self._receiver.tick(None if teams is None else sorted(teams), epoch, server_ms, server_now)
        recover_wait = self._recoverer.tick(epoch, now, server_ms, server_now)
        due_wait = self._promote(server_ms)
        self._look_at_dirty()
        feed_wait = self._feeder.tick(epoch, now, server_now)
        ask_wait = self._dispatcher.tick(epoch, now, server_now)
        self._janitor.tick(self._inbox.teams() if now >= self._housekeeping_ms else [], now)
        return [self._housekeeping_ms - now, recover_wait, due_wait, feed_wait, ask_wait]

    def _housekeep(self, server_ms: int) -> None:
        active = set(self._runs.active())
        for run in self._backlog.runs():
            if run.ref not in active:
                self._forget(run.ref)
        for ref in active:
            if self._backlog.get(ref) is None:
                self._load(ref)
        beats = self._workers.beats(self._redis)
        self._capacity.update([beat for beat in beats if beat.beat_ms + self._worker_timeout_ms >= server_ms])
        self._dispatcher.wake_all()

    def _load(self, ref: RunRef) -> None:
        plan = self._runs.plan(ref)
        if plan is None:
            return
        lanes = self._runs.lanes(ref)
        run = ActiveRun(ref, plan, self._runs.cursor(ref), lanes - set(plan.judge_lanes) or lanes)
        self._backlog.add_run(run)
        for lane, count in self._runs.queued(ref, sorted(lanes)).items():
            self._backlog.settle(lane, ref, count)

    def _drain_after_restart(self) -> None:
        """A server that restarted may have forgotten its last second of permits: let nothing burst."""
        server = self._redis.info("server").get("run_id")
        if self._server_id not in (None, server):
            for lane in self._lanes.names():
                self._lanes.drain(lane, self._server_now())
        self._server_id = server

    def _forget(self, ref: RunRef) -> None:
        self._backlog.drop_run(ref)
        self._feeder.forget(ref)

    def _promote(self, server_ms: int) -> int | None:
        for job in self._runs.delayed(server_ms):
            self._runs.promote(job, self._server_now())
        due = self._runs.next_due_ms()
        return None if due is None else max(1, due - server_ms)

    def _look_at_dirty(self) -> None:
        for raw in self._redis.spop(self._keys.dirty, DIRTY_AT_ONCE):
            lane, _, ref = raw.decode().partition("|")
            if lane == "*":
                self._housekeeping_ms = 0
                continue
            if ref:
                self._backlog.add(lane, RunRef.parse(ref))
            self._dispatcher.wake(lane)

    def _publish_catalog(self) -> None:
        known = {
            name: {"protocol": connection.protocol, "scope": connection.scope}
            for name, connection in self._settings.connections.items()
        }
        self._redis.set(self._keys.catalog, json.dumps({"connections": known}))

    def _server_now(self) -> str | int:
        return ""

    def _server_ms(self) -> int:
        seconds, micros = self._redis.time()
        return int(seconds) * 1000 + int(micros) // 1000
