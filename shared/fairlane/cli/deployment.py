"""An open deployment: everything a command may ask, over one connection to Redis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from redis.exceptions import RedisError

from fairlane.admission.lanes import Lanes
from fairlane.cli.invocation import Invocation
from fairlane.client import Client
from fairlane.settings import Settings
from fairlane.store.audit import Auditor, operator
from fairlane.store.connect import RedisClient, open_store, require, unavailable, without_password
from fairlane.store.keys import Keys
from fairlane.store.lane_directory import LaneDirectory
from fairlane.store.overview import DeploymentReader
from fairlane.store.reading import RunReader
from fairlane.store.workers import Beat, Workers


@dataclass(frozen=True, slots=True)
class Deployment:
    """What the settings in force lead to."""

    settings: Settings
    redis: RedisClient
    keys: Keys

    @property
    def client(self) -> Client:
        """For the team in force."""
        return Client(settings=self.settings, redis=self.redis)

    @property
    def auditor(self) -> Auditor:
        """This command's user, for what an operator changes."""
        return Auditor("operator", operator(), self.settings.audit.keep)

    @property
    def lanes(self) -> Lanes:
        return Lanes(self.redis, self.keys, self.auditor)

    @property
    def reader(self) -> DeploymentReader:
        return DeploymentReader(self.redis, self.keys)

    def now_ms(self) -> int:
        """The server's clock: what every time in Redis is to be compared with."""
        return RunReader(self.redis, self.keys).now_ms()

    def connections(self) -> frozenset[str] | None:
        """Connections that the scheduler knows; ``None`` if none has ever led."""
        return RunReader(self.redis, self.keys).connections()

    def directory(self) -> LaneDirectory:
        """Which lanes models go on."""
        return LaneDirectory.read(self.redis, self.keys, self.settings.connections)

    @property
    def workers(self) -> Workers:
        return Workers(self.keys, self.auditor)

    def beats(self) -> list[Beat]:
        """Workers that have not left."""
        return Workers(self.keys).beats(self.redis)

    def is_led(self) -> bool:
        """Whether a scheduler leads now."""
        leader = self.reader.leader()
        return leader is not None and leader.until_ms > self.now_ms()


@contextmanager
def open_deployment(invocation: Invocation) -> Iterator[Deployment]:
    """The deployment of the settings in force. Raises `ConfigurationError` and `StoreUnavailable`."""
    settings = invocation.settings()
    redis = open_store(settings.redis)
    try:
        require(redis, settings.redis.url)
        yield Deployment(settings, redis, Keys(settings.redis.deployment))
    except RedisError as error:
        raise unavailable(without_password(settings.redis.url), error) from error
    finally:
        redis.close()
