"""Moves runs into the archive some time after they finished, in a thread of its own: no tick waits for it."""

from __future__ import annotations

from collections.abc import Callable

from redis.exceptions import RedisError

from fairlane.archive.opening import Archive, open_archive
from fairlane.clock import Clock
from fairlane.errors import ArchiveUnavailable, ConfigurationError, RunNotFound, StoreUnavailable
from fairlane.events import Event
from fairlane.link import Link
from fairlane.logs import get_logger
from fairlane.mover import Moved, Mover
from fairlane.settings import Settings
from fairlane.store.audit import Auditor
from fairlane.store.connect import RedisClient, open_store, without_password
from fairlane.store.inbox import Inbox
from fairlane.store.keys import Keys, RunRef
from fairlane_scheduler.rounds import Rounds

log = get_logger("archiver")

LOOK_EVERY_S = 5.0
AGAIN_S = 30.0  # a database that is away is asked again
PUT_OFF_MS = 300_000  # a run that cannot be moved lets the others pass
REST_S = 0.01  # between two portions: the ticks of this process need the interpreter, too


class Stopping(Exception):
    """The process ends; what is being copied is copied again by whoever leads next."""


class Archiver:
    """Looks for finished runs as long as ``leads`` says so; errors are logged and tried again."""

    def __init__(
        self,
        redis: RedisClient,
        settings: Settings,
        archive: Archive,
        clock: Clock,
        leads: Callable[[], bool],
    ) -> None:
        self._redis, self._archive, self._clock, self._leads = redis, archive, clock, leads
        keys = Keys(settings.redis.deployment)
        url = without_password(settings.redis.url)
        self._link = Link(redis, keys, url, clock, waiter=self)
        self._inbox = Inbox(redis, keys)
        self._mover = Mover(
            self._link, archive, keep_on=lambda: self.wait(REST_S), auditor=_auditor(settings)
        )
        self._after_ms = round(settings.archive.after_seconds * 1000)
        self._put_off: dict[RunRef, int] = {}
        self.rounds = Rounds("archiver", self._round, self._close)

    def wait(self, seconds: float) -> None:
        """Return after ``seconds``. Raises `Stopping` as soon as it is time to end."""
        if self.rounds.ends_within(seconds):
            raise Stopping

    def tick(self) -> float:
        """Move every run that is due. Returns seconds until the next look."""
        try:
            if self._leads():
                upto_ms = self._link.runs.now_ms() - self._after_ms
                for team in self._inbox.teams():
                    for ref in self._mover.due(team, upto_ms):
                        if not self._leads():
                            return LOOK_EVERY_S
                        self._move(ref)
        except (ArchiveUnavailable, ConfigurationError, StoreUnavailable, RedisError) as error:
            log.warning(Event.ARCHIVE_FAILED, error=str(error))
            return AGAIN_S
        return LOOK_EVERY_S

    def _move(self, ref: RunRef) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._put_off.get(ref, now_ms) > now_ms:
            return
        self._put_off.pop(ref, None)
        try:
            moved = self._mover.move(ref)
        except (Stopping, ArchiveUnavailable, ConfigurationError, StoreUnavailable, RedisError):
            raise
        except RunNotFound:
            return  # it has expired
        except Exception:
            self._put_off[ref] = now_ms + PUT_OFF_MS
            log.exception(Event.ARCHIVE_FAILED, run=ref.run, team=ref.team)
            return
        if moved is Moved.MOVED:
            log.info(Event.RUN_ARCHIVED, run=ref.run, team=ref.team)

    def _round(self) -> float:
        try:
            return self.tick()
        except Stopping:
            return 0.0
        except Exception:
            # A defect. The next look may be spared it.
            log.exception(Event.ARCHIVE_FAILED)
            return AGAIN_S

    def _close(self) -> None:
        self._archive.close()
        self._redis.close()


def _auditor(settings: Settings) -> Auditor:
    return Auditor("scheduler", "archiver", settings.audit.keep)


def start_archiver(settings: Settings, clock: Clock, leads: Callable[[], bool]) -> Archiver | None:
    """A running archiver; ``None`` where no archive is configured. Raises `ConfigurationError`."""
    archive = open_archive(settings)
    if archive is None:
        return None
    after, kept = settings.archive.after_seconds, settings.scheduler.finished_ttl_seconds
    if after >= kept:
        problem = f"runs are kept for {kept:g} s, and would expire before they are moved"
        raise ConfigurationError("archive.after_seconds", after, problem, "Make it less than that")
    _ = archive.writer  # a URL or a driver that is wrong is told at once, not when the first run has finished
    archiver = Archiver(open_store(settings.redis), settings, archive, clock, leads)
    archiver.rounds.start()
    return archiver
