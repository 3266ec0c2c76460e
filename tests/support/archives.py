"""A deployment with an archive, for tests that move runs there and read them back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pydantic import SecretStr
from redis import Redis

from fairlane.apps.archive.mover import RunMover
from fairlane.apps.archive.opening import Archive
from fairlane.client.archive import Moved
from fairlane.client.client import Client
from fairlane.client.deployment import Deployment
from fairlane.client.outputs import Run
from fairlane.config.sections import ArchiveSettings, RedisSettings
from fairlane.config.settings import Settings
from fairlane.model.run import RunRef
from tests.support.stage import Stage

MEMORY = SecretStr("sqlite://")


def sqlite_url(directory: Path) -> SecretStr:
    return SecretStr(f"sqlite:///{directory / 'runs.db'}")


class ArchivedStage(Stage):
    """A stage whose client has an archive; ``url`` is the database."""

    def __init__(self, redis: Redis, url: SecretStr, team: str = "search") -> None:
        self.url = url
        super().__init__(redis, team)
        self.archive = Archive(url, "test")

    def client_of(self, team: str) -> Client:
        settings = Settings(
            redis=RedisSettings(deployment="test"), team=team, archive=ArchiveSettings(url=self.url)
        )
        return Client(settings=settings, redis=self.redis, clock=self.clock, waiter=self)

    @property
    def without_archive(self) -> Deployment:
        """The archive as the archiver uses it."""
        return replace(self.client._deployment, archive=None)

    @property
    def mover(self) -> RunMover:
        return RunMover(self.without_archive, self.archive)

    def ref(self, run: Run) -> RunRef:
        return RunRef(run.team, run.id)

    def move(self, run: Run) -> Moved:
        return self.mover.move(self.ref(run))

    def expire(self, run: Run) -> None:
        """Delete all of a run's keys in Redis."""
        for key in self.redis.scan_iter(count=1000):
            if f":{run.id}:" in key.decode():
                self.redis.delete(key)

    def close(self) -> None:
        self.archive.close()
        self.client.close()
