"""The archive in a database. It loads SQLAlchemy when it is first used, not before."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from pydantic import SecretStr

from fairlane.apps.archive.either import EitherRecords, EitherRuns, EitherSessions
from fairlane.apps.archive.mover import RunMover
from fairlane.client.archive import FIELD
from fairlane.client.deployment import Deployment
from fairlane.core.errors import ConfigurationError
from fairlane.model.run import RunSpec
from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import Keys
from fairlane.store.read.reading import RecordReader, RunReader
from fairlane.store.read.session_reading import SessionReader
from fairlane.store.write.audit import UNNAMED, Auditor

if TYPE_CHECKING:
    from fairlane.apps.archive.database import Database
    from fairlane.apps.archive.reading import ArchiveReader
    from fairlane.apps.archive.writing import ArchiveWriter


class Archive:
    """Finished runs of one deployment in a database. May be shared by threads.

    ``reader`` and ``writer`` raise `ConfigurationError` where SQLAlchemy or a driver is missing, or where the
    URL is none. No error and no text of it has the URL.
    """

    def __init__(self, url: SecretStr, deployment: str) -> None:
        self._url, self._deployment = url, deployment

    @cached_property
    def _database(self) -> Database:
        try:
            from fairlane.apps.archive.database import Database
        except ImportError as error:
            if (error.name or "").partition(".")[0] != "sqlalchemy":
                raise
            problem, remedy = "needs SQLAlchemy, which is not installed", "pip install 'fairlane[archive]'"
            raise ConfigurationError(FIELD, self._url, problem, remedy) from None
        return Database(self._url)

    @cached_property
    def reader(self) -> ArchiveReader:
        """Reads archived runs."""
        database = self._database
        from fairlane.apps.archive.reading import ArchiveReader

        return ArchiveReader(database, self._deployment)

    @cached_property
    def writer(self) -> ArchiveWriter:
        """Writes runs into the archive."""
        database = self._database
        from fairlane.apps.archive.writing import ArchiveWriter

        return ArchiveWriter(database, self._deployment)

    def runs(self, redis: RedisClient, keys: Keys) -> RunReader:
        """Reads runs from Redis first, then from the database."""
        return EitherRuns(redis, keys, self)

    def records(self, redis: RedisClient, keys: Keys, spec: RunSpec) -> RecordReader:
        """Reads items' records from Redis first, then from the database."""
        return EitherRecords(redis, keys, spec, self)

    def sessions(self, redis: RedisClient, keys: Keys, spec: RunSpec) -> SessionReader:
        """Reads sessions' records from Redis first, then from the database."""
        return EitherSessions(redis, keys, spec, self)

    def mover(
        self, deployment: Deployment, keep_on: Callable[[], None] = lambda: None, auditor: Auditor = UNNAMED
    ) -> RunMover:
        """Moves runs of ``deployment``'s Redis into this database; see `RunMover`."""
        return RunMover(deployment, self, keep_on, auditor)

    def require_writable(self) -> None:
        """Raise `ConfigurationError` where the URL or its driver is wrong."""
        _ = self.writer

    def close(self) -> None:
        """Close connections to the database, if any were opened."""
        if "_database" in self.__dict__:
            self._database.close()
