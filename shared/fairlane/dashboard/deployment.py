"""What the pages read from: one deployment's Redis, by the classes that everybody reads it with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fairlane.admission.lanes import Lanes
from fairlane.admission.targets import Asker
from fairlane.archive.opening import open_archive
from fairlane.clock import SystemClock
from fairlane.link import Link
from fairlane.polling import SystemWaiter
from fairlane.settings import Settings, TeamSettings
from fairlane.store.budgets import Budgets
from fairlane.store.connect import RedisClient, open_store, without_password
from fairlane.store.glances import Glances
from fairlane.store.history import History
from fairlane.store.keys import Keys
from fairlane.store.overview import DeploymentReader
from fairlane.store.registry import Registry
from fairlane.store.workers import Beat, Workers


def _by_the_server() -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Deployment:
    """May be shared by threads: each call takes a connection of its own.

    ``moment`` is what scripts take as ``now_ms``: empty, but for simulations, which decide by another clock.
    """

    settings: Settings
    link: Link
    moment: Callable[[], str | int] = _by_the_server

    @classmethod
    def open(cls, settings: Settings) -> Deployment:
        """The deployment of these settings; nothing is asked of it yet."""
        return cls.on(open_store(settings.redis), settings)

    @classmethod
    def on(
        cls, redis: RedisClient, settings: Settings, moment: Callable[[], str | int] = _by_the_server
    ) -> Deployment:
        """The same, over a client that is open."""
        link = Link(
            redis=redis,
            keys=Keys(settings.redis.deployment),
            url=without_password(settings.redis.url),
            clock=SystemClock(),
            waiter=SystemWaiter(),
            weights={name: team.weight for name, team in settings.teams.items()},
            archive=open_archive(settings),
            prices=settings.prices,
            connections=settings.connections,
        )
        return cls(settings, link, moment)

    @property
    def lanes(self) -> Lanes:
        return Lanes(self.link.redis, self.link.keys)

    @property
    def history(self) -> History:
        return History(self.link.redis, self.link.keys)

    @property
    def reader(self) -> DeploymentReader:
        return DeploymentReader(self.link.redis, self.link.keys)

    @property
    def glances(self) -> Glances:
        return Glances(self.link.redis, self.link.keys)

    @property
    def budgets(self) -> Budgets:
        return Budgets(self.link.redis, self.link.keys)

    def now_ms(self) -> int:
        """The server's clock: what every time in Redis is to be compared with."""
        return int(self.moment() or self.link.runs.now_ms())

    def asker(self, team: str) -> Asker:
        """Who tells why a team's jobs wait."""
        weights = {name: claim.weight for name, claim in self.claims([team]).items()}
        link = self.link
        return Asker(link.redis, link.keys, team, {**link.weights, **weights}, self.moment())

    def working(self) -> list[Beat]:
        """Workers that take calls."""
        beats = Workers(self.link.keys).beats(self.link.redis)
        return [beat for beat in beats if not beat.info.stopping]

    def is_led(self, now_ms: int) -> bool:
        """Whether a scheduler leads."""
        leader = self.reader.leader()
        return leader is not None and leader.until_ms > now_ms

    def claims(self, teams: Sequence[str]) -> dict[str, TeamSettings]:
        """What each team may claim of a lane, by the configuration and by what operators said since."""
        stated = {team: self.settings.teams.get(team, TeamSettings()) for team in teams}
        made = Registry(self.link.redis, self.link.keys).all()
        return {team: made[team].over(claim) if team in made else claim for team, claim in stated.items()}
