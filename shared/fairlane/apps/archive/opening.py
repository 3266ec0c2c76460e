"""The archive in a database: what client and scheduler ask of it."""

from __future__ import annotations

from collections.abc import Callable

from fairlane.apps.archive.access import Access
from fairlane.apps.archive.either import EitherRecords, EitherRuns, EitherSessions
from fairlane.apps.archive.mover import RunMover
from fairlane.client.deployment import Deployment
from fairlane.model.run import RunSpec
from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import Keys
from fairlane.store.read.reading import RecordReader, RunReader
from fairlane.store.read.session_reading import SessionReader
from fairlane.store.write.audit import UNNAMED, Auditor


class Archive(Access):
    """Finished runs of one deployment in a database. May be shared by threads."""

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
