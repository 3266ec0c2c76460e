"""Moves finished runs into the archive, in a background thread, so that no tick waits for it."""

import math
from collections.abc import Callable
from typing import NamedTuple

from redis.exceptions import RedisError

from fairlane.client.archive import Archive, Moved, open_archive
from fairlane.client.deployment import Deployment
from fairlane.config.settings import Settings
from fairlane.core.clock import Clock
from fairlane.core.errors import ArchiveUnavailable, ConfigurationError, RunNotFound, StoreUnavailable
from fairlane.core.events import Event
from fairlane.model.run import RunRef
from fairlane.store.connection.connect import RedisClient, open_store
from fairlane.store.write.audit import Auditor
from fairlane.store.write.runs.archive_stub import ArchiveStubs
from fairlane.store.write.runs.inbox import Inbox
from fairlane.telemetry.logs import get_logger
from fairlane_scheduler.state.periodic_thread import PeriodicThread

log = get_logger("archiver")

LOOK_EVERY_S = 5.0
AGAIN_S = 30.0  # until the next try while the database cannot be reached
PUT_OFF_S = 300.0  # until the next try for a run that failed to move; less if runs expire soon
TRIES = 9  # least tries for such a run before it expires
LEAST_LEFT_MS = 86_400_000  # a waiting run that would expire sooner is prolonged to twice this
NEARLY_FULL = 0.8  # of Redis' maxmemory: above it, runs that wait for the archive are not prolonged
PAUSE_S = 0.01  # between two portions, because the scheduler's thread needs the interpreter, too


class Stopping(Exception):
    """The process is stopping. If a copy is incomplete, the next leader copies that run again."""


class Unmoved(NamedTuple):
    """How many finished runs were due at the last look, and for how many seconds the first was overdue."""

    runs: int
    late_s: float


class Archiver:
    """Moves finished runs while ``leads`` returns true. Logs errors and tries again."""

    def __init__(
        self,
        redis: RedisClient,
        settings: Settings,
        archive: Archive,
        clock: Clock,
        leads: Callable[[], bool],
    ) -> None:
        self._redis, self._archive, self._clock, self._leads = redis, archive, clock, leads
        self._deployment = Deployment(settings, redis, clock, waiter=self)
        self._inbox = Inbox(redis, self._deployment.keys)
        self._stubs = ArchiveStubs(redis, self._deployment.keys)
        auditor = Auditor("scheduler", "archiver", settings.audit.keep)
        self._mover = archive.mover(self._deployment, lambda: self.wait(PAUSE_S), auditor)
        after_s, kept_s = settings.archive.after_seconds, settings.scheduler.finished_ttl_seconds
        self._after_ms = round(after_s * 1000)
        self._put_off_ms = round(min(PUT_OFF_S, (kept_s - after_s) / TRIES) * 1000)
        self._put_off: dict[RunRef, int] = {}
        self._least_left_ms = min(LEAST_LEFT_MS, round(kept_s * 500))
        self._hold_ms = round(settings.archive.hold_seconds * 1000)
        self.unmoved = Unmoved(0, 0.0)
        self.thread = PeriodicThread("archiver", self._look_and_log, self._close)

    def wait(self, seconds: float) -> None:
        """Return after ``seconds``. Raises `Stopping` as soon as the process is to stop."""
        if self.thread.ends_within(seconds):
            raise Stopping

    def tick(self) -> float:
        """Move every run that is due. Returns the seconds until the next pass."""
        try:
            if self._leads():
                now_ms = self._deployment.runs.now_ms()
                upto_ms = now_ms - self._after_ms
                due = [ref for team in self._inbox.teams() for ref in self._mover.due(team, upto_ms)]
                self._hold(due, now_ms)
                self._put_off = {ref: self._put_off[ref] for ref in due if ref in self._put_off}
                for ref in due:
                    if not self._leads():
                        return LOOK_EVERY_S
                    self._move(ref)
            else:
                self.unmoved = Unmoved(0, 0.0)
        except (ArchiveUnavailable, ConfigurationError) as error:
            log.warning(Event.ARCHIVE_FAILED, error=str(error))
            return min(AGAIN_S, self._least_left_ms / 2000)
        except (StoreUnavailable, RedisError) as error:
            log.warning(Event.ARCHIVE_FAILED, error=str(error))
        return LOOK_EVERY_S

    def _hold(self, due: list[RunRef], now_ms: int) -> None:
        """Prolong runs that wait to be moved, so that they do not expire; note how many there are."""
        server = self._deployment.reader.server() if due else None
        room = server is None or server.memory_used <= NEARLY_FULL * (server.memory_limit or math.inf)
        since_ms = now_ms - self._hold_ms if room else now_ms
        least_ms = self._least_left_ms
        oldest_ms = self._stubs.prolong(due, least_ms, 2 * least_ms, since_ms)
        late_ms = 0 if oldest_ms is None else max(0, now_ms - self._after_ms - oldest_ms)
        self.unmoved = Unmoved(len(due), late_ms / 1000)

    def _move(self, ref: RunRef) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._put_off.get(ref, now_ms) > now_ms:
            return
        try:
            moved = self._mover.move(ref)
        except (Stopping, ArchiveUnavailable, ConfigurationError, StoreUnavailable, RedisError):
            raise
        except RunNotFound:
            return  # it has expired
        except Exception:
            self._put_off[ref] = now_ms + self._put_off_ms
            log.exception(Event.ARCHIVE_FAILED, run=ref.run, team=ref.team)
            return
        if moved is Moved.MOVED:
            log.info(Event.RUN_ARCHIVED, run=ref.run, team=ref.team)

    def _look_and_log(self) -> float:
        try:
            return self.tick()
        except Stopping:
            return 0.0
        except Exception:
            # A bug. The next pass may succeed.
            log.exception(Event.ARCHIVE_FAILED)
            return AGAIN_S

    def _close(self) -> None:
        self._archive.close()
        self._redis.close()


def start_archiver(settings: Settings, clock: Clock, leads: Callable[[], bool]) -> Archiver | None:
    """A running archiver; ``None`` if no archive is configured. Raises `ConfigurationError`."""
    archive = open_archive(settings)
    if archive is None:
        return None
    after, kept = settings.archive.after_seconds, settings.scheduler.finished_ttl_seconds
    if after >= kept:
        problem = f"runs are kept for {kept:g} s, and would expire before they are moved"
        raise ConfigurationError("archive.after_seconds", after, problem, "Make it less than that")
    archive.require_writable()  # report a wrong URL or driver now, not at the first finished run
    archiver = Archiver(open_store(settings.redis), settings, archive, clock, leads)
    archiver.thread.start()
    return archiver
