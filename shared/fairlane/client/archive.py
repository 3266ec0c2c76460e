"""The interface of an archive of finished runs for client and scheduler; an application implements it."""

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any, Protocol

from fairlane.client.apps import load_app
from fairlane.config.settings import Settings
from fairlane.core.errors import ConfigurationError
from fairlane.model.run import RunRef, RunSpec
from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import Keys
from fairlane.store.read.reading import RecordReader, RunReader
from fairlane.store.read.session_reading import SessionReader
from fairlane.store.write.audit import Auditor

FIELD = "archive.url"


class Moved(StrEnum):
    """What `Mover.move` found to do."""

    MOVED = "moved"
    MOVED_BEFORE = "moved before"
    RUNNING = "not finished"
    REFUSED = "refused"
    NEEDED = "needed by a run that continues it"


class Mover(Protocol):
    """Moves finished runs from Redis into the archive. An interrupted move can be repeated."""

    def due(self, team: str, finished_by_ms: int) -> Iterator[RunRef]:
        """The team's runs that finished by then (server milliseconds), oldest first."""
        ...

    def move(self, ref: RunRef) -> Moved:
        """Copy a finished run and leave a stub of it in Redis.

        Raises `RunNotFound`, `ArchiveUnavailable`, `ArchiveTooNew` or `StoreUnavailable`.
        """
        ...


class Archive(Protocol):
    """Finished runs of one deployment, outside Redis. Threads may share it."""

    def runs(self, redis: RedisClient, keys: Keys) -> RunReader:
        """Reads runs from Redis first, then from the archive."""
        ...

    def records(self, redis: RedisClient, keys: Keys, spec: RunSpec) -> RecordReader:
        """Reads items' records from Redis first, then from the archive."""
        ...

    def sessions(self, redis: RedisClient, keys: Keys, spec: RunSpec) -> SessionReader:
        """Reads sessions' records from Redis first, then from the archive."""
        ...

    def mover(self, deployment: Any, checkpoint: Callable[[], None], auditor: Auditor) -> Mover:
        """Moves runs of a `Deployment`; calls ``checkpoint`` before each portion, which raises to stop."""
        ...

    def require_writable(self) -> None:
        """Raise `ConfigurationError` where the URL or its driver is wrong."""
        ...

    def close(self) -> None:
        """Close the connections that were opened."""
        ...


def open_archive(settings: Settings) -> Archive | None:
    """The archive of these settings; ``None`` where they name none."""
    url = settings.archive.url
    if url is None:
        return None
    archive: Archive = load_app("archive")(url, settings.redis.deployment)
    return archive


def require_archive(archive: Archive | None) -> Archive:
    """Return ``archive``. Raises `ConfigurationError` where the settings name none."""
    if archive is None:
        remedy = "Set archive.url, such as sqlite:///runs.db or postgresql+psycopg://user@host/name"
        raise ConfigurationError(FIELD, None, "no archive is configured", remedy)
    return archive
