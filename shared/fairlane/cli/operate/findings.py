"""What `fairlane doctor` sees of a deployment, and the findings that it prints."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from fairlane.cli.lanes.lane_views import LaneReport
from fairlane.config.settings import Settings, WorkerSecrets
from fairlane.store.read.overview import LeaderView, ServerView
from fairlane.store.write.leases import Untaken
from fairlane.store.write.workers import Beat


class Grade(StrEnum):
    """The result of a check. Only ``fail`` stops jobs or puts them at risk."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; ``remedy`` says what to do unless the grade is ok."""

    check: str
    grade: Grade
    detail: str
    remedy: str = ""


def ok(check: str, detail: str) -> Finding:
    """A check that found nothing."""
    return Finding(check, Grade.OK, detail)


def warn(check: str, detail: str, remedy: str) -> Finding:
    """A check that found a problem which does not harm jobs."""
    return Finding(check, Grade.WARN, detail, remedy)


def fail(check: str, detail: str, remedy: str) -> Finding:
    """A check that found a problem which stops jobs or puts them at risk."""
    return Finding(check, Grade.FAIL, detail, remedy)


@dataclass(frozen=True, slots=True)
class Clocks:
    """This machine's clock and the deployment's time, read within ``round_trip_ms`` of each other.

    ``ahead_ms`` is how far that time is ahead of Redis's own clock, which has stepped back.
    """

    here_ms: int
    server_ms: int
    round_trip_ms: int
    ahead_ms: int = 0

    @property
    def apart_ms(self) -> int:
        """How far this machine is ahead of Redis, less what the reading itself may have taken."""
        apart = self.here_ms - (self.server_ms - self.ahead_ms)
        doubt = min(abs(apart), self.round_trip_ms)
        return apart - doubt if apart > 0 else apart + doubt


@dataclass(frozen=True, slots=True)
class BrokerView:
    """A broker that is not the Redis with the state: what it is, or its ``problem`` and the remedy."""

    summary: str = "it answers"
    problem: str | None = None
    remedy: str = "Start it, or correct celery.broker_url."


class Unmoved(NamedTuple):
    """Number of finished runs that are late for the archive, and when the first of them ended.

    ``due``: all that are due, late or not. ``problem``: why the archive does not answer.
    """

    runs: int
    oldest_ms: int
    due: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the doctor reads of a deployment; ``catalog`` holds the connections that its scheduler knows.

    ``carriers``: the lane that carries the calls of a configured lane, if it is another one.
    ``frees_in_background``: whether Redis frees expired runs so; ``None`` if unknown. ``unmoved``: runs that
    are late for the archive; ``None`` without one. ``untaken``: permits that no worker has taken.
    """

    settings: Settings
    secrets: WorkerSecrets
    version: str
    server: ServerView | None
    clocks: Clocks
    leader: LeaderView | None
    beats: Sequence[Beat]
    catalog: frozenset[str] | None
    lanes: Sequence[LaneReport]
    broker: BrokerView | None = None
    carriers: Mapping[str, str] = field(default_factory=dict)
    frees_in_background: bool | None = None
    unmoved: Unmoved | None = None
    untaken: Sequence[Untaken] = ()
