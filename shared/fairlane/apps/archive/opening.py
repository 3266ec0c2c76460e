"""The archive in a database, with the interface that client and scheduler use."""

from collections.abc import Callable, Iterable, Sequence

from fairlane.apps.archive.access import Access
from fairlane.apps.archive.mover import RunMover
from fairlane.client.deployment import Deployment
from fairlane.core.errors import RunNotFound
from fairlane.model.record import Record
from fairlane.model.run import RunRef, RunSpec, RunState
from fairlane.model.run_status import RunStatus
from fairlane.model.sessions import SessionRecord
from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import Keys
from fairlane.store.read.overviews import Overview
from fairlane.store.read.reading import RecordReader, RunReader
from fairlane.store.read.session_reading import SessionReader
from fairlane.store.write.audit import UNNAMED, Auditor


class EitherRuns(RunReader):
    """Reads a run from Redis first. A run that is in neither is not found."""

    def __init__(self, redis: RedisClient, keys: Keys, archive: Access) -> None:
        super().__init__(redis, keys)
        self._archive = archive

    def overview(self, ref: RunRef) -> Overview:
        """Read a run from Redis, else from the archive. Raises `RunNotFound`."""
        try:
            return super().overview(ref)
        except RunNotFound:
            return self._archive.stored.overview(ref)

    def status(self, ref: RunRef, spec: RunSpec) -> RunStatus:
        """Read a run's status from Redis, else from the archive. Raises `RunNotFound`."""
        try:
            return super().status(ref, spec)
        except RunNotFound:
            return self._archive.stored.overview(ref).status

    def is_archived(self, ref: RunRef) -> bool:
        """Whether Redis has a stub of the run or nothing at all: for a run that `overview` finds."""
        return super().is_archived(ref) or not self._redis.exists(self._keys.state(ref), self._keys.spec(ref))

    def finished(self, ref: RunRef, start: int, count: int) -> tuple[RunState, list[int]]:
        """Read the state and finished items from Redis, else from the archive. Raises `RunNotFound`."""
        try:
            return super().finished(ref, start, count)
        except RunNotFound:
            return self._archive.stored.finished(ref, start, count)


class EitherRecords(RecordReader):
    """Reads records from Redis, then from the archive: a run may be moved while it is read."""

    def __init__(self, redis: RedisClient, keys: Keys, spec: RunSpec, archive: Access) -> None:
        super().__init__(redis, keys, spec)
        self._archive, self._moved = archive, False

    def fetch(self, items: Sequence[int]) -> Iterable[Record]:
        """Read items' records from Redis, else from the archive. Raises `RunNotFound`."""
        if not self._moved:
            try:
                return super().fetch(items)
            except RunNotFound:
                self._moved = True
        return self._archive.stored.records(self._ref, items)


class EitherSessions(SessionReader):
    """Reads records of sessions, as `EitherRecords` does those of items."""

    def __init__(self, redis: RedisClient, keys: Keys, spec: RunSpec, archive: Access) -> None:
        super().__init__(redis, keys, spec)
        self._archive, self._moved = archive, False

    def records(self, sessions: Sequence[int]) -> list[SessionRecord]:
        """Read sessions' records from Redis, else from the archive. Raises `RunNotFound`."""
        if not self._moved:
            try:
                return super().records(sessions)
            except RunNotFound:
                self._moved = True
        return self._archive.stored.sessions(self._ref, self._spec, sessions)


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
        self,
        deployment: Deployment,
        checkpoint: Callable[[], None] = lambda: None,
        auditor: Auditor = UNNAMED,
    ) -> RunMover:
        """Moves runs of ``deployment``'s Redis into this database; see `RunMover`."""
        return RunMover(deployment, self, checkpoint, auditor)
