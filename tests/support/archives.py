"""An archive beside a staged deployment, for tests of what is moved there and read back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pydantic import SecretStr
from redis import Redis

from fairlane.archive.opening import Archive
from fairlane.client import Client
from fairlane.handle import Run
from fairlane.link import Link
from fairlane.mover import Moved, Mover
from fairlane.settings import ArchiveSettings, RedisSettings, Settings
from fairlane.store.keys import RunRef
from tests.support.stage import Stage

MEMORY = SecretStr("sqlite://")


def sqlite_url(directory: Path) -> SecretStr:
    return SecretStr(f"sqlite:///{directory / 'runs.db'}")


class ArchivedStage(Stage):
    """A stage whose client knows an archive; ``url`` is the database."""

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
    def link(self) -> Link:
        """As an archiver has it."""
        return replace(self.client._link, archive=None)

    @property
    def mover(self) -> Mover:
        return Mover(self.link, self.archive)

    def ref(self, run: Run) -> RunRef:
        return RunRef(run.team, run.id)

    def move(self, run: Run) -> Moved:
        return self.mover.move(self.ref(run))

    def expire(self, run: Run) -> None:
        """Redis forgets all of a run."""
        for key in self.redis.scan_iter(count=1000):
            if f":{run.id}:" in key.decode():
                self.redis.delete(key)

    def close(self) -> None:
        self.archive.close()
        self.client.close()
