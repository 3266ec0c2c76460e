"""An open Redis and what goes with it: what a client shares with the runs it hands out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from redis.exceptions import RedisError

from fairlane.admission.targets import Asker
from fairlane.archive.either import EitherRecords, EitherRuns, EitherSessions
from fairlane.archive.opening import Archive
from fairlane.clock import Clock
from fairlane.connection import Connection
from fairlane.polling import Patience, Waiter
from fairlane.run import RunSpec
from fairlane.settings import Price
from fairlane.store.connect import RedisClient, unavailable
from fairlane.store.inbox import Outbox
from fairlane.store.keys import Keys
from fairlane.store.reading import RecordReader, RunReader
from fairlane.store.session_reading import SessionReader


@dataclass(frozen=True, slots=True)
class Link:
    """The way to one deployment. ``url`` is as it may be shown, ``weights`` are the teams' where stated.

    ``prices`` and ``connections`` are as the client's own settings have them, which may have none.
    With an ``archive``, ``runs``, ``records`` and ``sessions`` find what has been moved there, too.
    """

    redis: RedisClient
    keys: Keys
    url: str
    clock: Clock
    waiter: Waiter
    weights: Mapping[str, float] = field(default_factory=dict)
    archive: Archive | None = None
    prices: Mapping[str, Price] = field(default_factory=dict)
    connections: Mapping[str, Connection] = field(default_factory=dict)

    @property
    def runs(self) -> RunReader:
        if self.archive is not None:
            return EitherRuns(self.redis, self.keys, self.archive)
        return RunReader(self.redis, self.keys)

    @property
    def outbox(self) -> Outbox:
        return Outbox(self.redis, self.keys)

    def asker(self, team: str) -> Asker:
        return Asker(self.redis, self.keys, team, self.weights)

    def records(self, spec: RunSpec) -> RecordReader:
        if self.archive is not None:
            return EitherRecords(self.redis, self.keys, spec, self.archive)
        return RecordReader(self.redis, self.keys, spec)

    def sessions(self, spec: RunSpec) -> SessionReader:
        if self.archive is not None:
            return EitherSessions(self.redis, self.keys, spec, self.archive)
        return SessionReader(self.redis, self.keys, spec)

    def patience(self) -> Patience:
        return Patience(self.url, self.clock, self.waiter)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Turns any failure of Redis inside into `StoreUnavailable`."""
        try:
            yield
        except RedisError as error:
            raise unavailable(self.url, error) from error
