"""The connection context of clients, commands and pages: a deployment's Redis, its settings, how to poll."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from threading import RLock
from typing import NamedTuple, Protocol, Self, TypeAlias, TypeVar

from redis.exceptions import AuthenticationError, NoPermissionError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from fairlane.client.archive import Archive, open_archive
from fairlane.config.sections import TeamSettings
from fairlane.config.settings import Settings
from fairlane.core.clock import Clock, DeploymentTime, SystemClock
from fairlane.core.errors import StoreRefuses, StoreUnavailable
from fairlane.model.run import RunSpec
from fairlane.store.connection.connect import (
    RedisClient,
    open_store,
    require,
    require_schema,
    unavailable,
    without_password,
)
from fairlane.store.keys import Keys
from fairlane.store.read.mistyped import mistyped, named
from fairlane.store.read.overview import DeploymentReader
from fairlane.store.read.reading import LaneDirectory, RecordReader, RunReader
from fairlane.store.read.session_reading import SessionReader
from fairlane.store.run_queries import RunStates, read_time
from fairlane.store.write.audit import UNNAMED, Auditor
from fairlane.store.write.budgets import Budgets
from fairlane.store.write.lanes.lane_history import History
from fairlane.store.write.lanes.lanes import Lanes
from fairlane.store.write.registry import Registry
from fairlane.store.write.runs.inbox import Outbox
from fairlane.store.write.workers import Beat, Workers
from fairlane.why.targets import Explainer

SHORTEST_WAIT_S = 0.05
LONGEST_WAIT_S = 0.5
FIRST_ANSWER_S = 5.0
"""Seconds in which Redis must answer a command's first request, which is sent twice."""

SILENCE_TOLERATED_S = 60.0
"""Longest absence of Redis that a client tolerates; loading a large append-only file takes less."""

ABSENCE_TOLERATED_S = 3600.0
"""The same for a client that waits for a run it has seen. The run goes on, so minutes without a network, or a
long failover, should not fail the wait."""

T = TypeVar("T")
R = TypeVar("R")


class Waiter(Protocol):
    """Waits between two polls."""

    def wait(self, seconds: float) -> None:
        """Return after ``seconds``."""
        ...


class SystemWaiter:
    """Waits in real time."""

    def wait(self, seconds: float) -> None:
        """Sleep for ``seconds``."""
        time.sleep(seconds)  # noqa: TID251 - a blocking client's one place to wait; tests inject another


class Wait(NamedTuple):
    """A step at which the caller waits for ``seconds``: in a thread, or in an event loop."""

    seconds: float


Steps: TypeAlias = Generator[Wait, None, T]
"""Work that yields where it must wait, and returns its result: blocking and async handles share it."""


def finish(steps: Steps[T], waiter: Waiter) -> T:
    """Do all steps in this thread, and return their result. An interrupt ends them at once."""
    with closing(steps):
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            waiter.wait(step.seconds)


class Blocking(Iterator[T]):
    """Iterates over what ``steps`` yield, and waits in the caller's thread at each `Wait`. It can go on after
    an error or an interrupt, if the steps can.
    """

    def __init__(self, steps: Iterable[T | Wait], waiter: Waiter) -> None:
        self._steps, self._waiter = iter(steps), waiter

    def __next__(self) -> T:
        while isinstance(step := next(self._steps), Wait):
            if step.seconds:
                self._waiter.wait(step.seconds)
        return step

    def close(self) -> None:
        """Close the steps, if they can be closed."""
        close = getattr(self._steps, "close", None)
        if close is not None:
            close()


def each_step(convert: Callable[[T], R], steps: Iterable[T | Wait]) -> Iterator[R | Wait]:
    """Convert each element and keep each `Wait`. Goes on after an error, as a `map` does."""

    def stepped(step: T | Wait) -> R | Wait:
        return step if isinstance(step, Wait) else convert(step)

    return map(stepped, steps)


class Resumable(Iterator[T]):
    """An iterator that outlives errors: after one, the next step calls ``begin`` again, which goes on.
    ``begin`` remembers where it stopped. Threads may share the iterator.
    """

    def __init__(self, begin: Callable[[], Iterator[T]]) -> None:
        self._begin = begin
        self._steps: Iterator[T] | None = None
        self._over = False
        self._lock = RLock()

    def __next__(self) -> T:
        with self._lock:
            if self._over:
                raise StopIteration
            try:
                if self._steps is None:
                    self._steps = self._begin()
                return next(self._steps)
            except StopIteration:
                self._over = True
                raise
            except BaseException:
                self._steps = None
                raise


class Pace:
    """Pauses between polls: each 1.5 times the last, from 50 ms to 500 ms."""

    def __init__(self) -> None:
        self._next_s = SHORTEST_WAIT_S

    def next_s(self, longest: float = LONGEST_WAIT_S) -> float:
        """Seconds to wait now, ``longest`` at most."""
        now, self._next_s = self._next_s, min(self._next_s * 1.5, LONGEST_WAIT_S)
        return min(now, longest)

    def restart(self) -> None:
        """Start over with the shortest pause, after a change."""
        self._next_s = SHORTEST_WAIT_S


class Patience:
    """Reads from a Redis that may be away; gives up after `SILENCE_TOLERATED_S` without an answer.

    Once it has read about a run that is waited for, it gives up after `ABSENCE_TOLERATED_S`.
    """

    def __init__(
        self, url: str, clock: Clock, checkpoint: Callable[[], object] = bool, run: str | None = None
    ) -> None:
        """``run``: the run that is waited for."""
        self._url, self._clock, self._checkpoint, self._run = url, clock, checkpoint, run
        self._silent_since: int | None = None
        self._answered = False

    @property
    def silence_s(self) -> float:
        """Seconds without an answer from Redis; 0 after an answer."""
        if self._silent_since is None:
            return 0.0
        return (self._clock.monotonic_ms() - self._silent_since) / 1000

    @property
    def _tolerated_s(self) -> float:
        return ABSENCE_TOLERATED_S if self._answered and self._run is not None else SILENCE_TOLERATED_S

    def ask(self, read: Callable[[], T]) -> T | None:
        """The result of ``read``; ``None`` while Redis is away. Raises `StoreUnavailable` when that lasts."""
        self._checkpoint()
        try:
            answer = read()
        except AuthenticationError as error:
            raise unavailable(self._url, error) from error
        except (RedisConnectionError, RedisTimeoutError) as error:
            if self._silent_since is None:
                self._silent_since = self._clock.monotonic_ms()
            if self.silence_s >= self._tolerated_s:
                raise self._given_up(error) from error
            return None
        except RedisError as error:
            raise unavailable(self._url, error) from error
        self._silent_since, self._answered = None, True
        return answer

    def _given_up(self, error: RedisError) -> StoreUnavailable:
        cause = f"no answer for {self.silence_s:.0f} s ({error})"
        if not self._answered:
            return StoreUnavailable(self._url, cause)
        remedy = "It answered before: it restarts or fails over, or the network to it is down"
        if self._run is not None:
            remedy += (
                f". Run {self._run} goes on without this client; `fairlane watch {self._run}` waits again"
            )
        return StoreUnavailable(self._url, cause, remedy)

    def until_answered(self, read: Callable[[], T]) -> Steps[T]:
        """The steps that call ``read`` until Redis answers, and return its result."""
        pace = Pace()
        while (answer := self.ask(read)) is None:
            yield Wait(pace.next_s())
        return answer


@dataclass(frozen=True, slots=True, eq=False)
class Deployment:
    """A deployment's Redis, the settings in force, and readers of both. May be shared by threads.

    With an ``archive``, ``runs``, ``records`` and ``sessions`` also read runs that were moved there.
    ``auditor`` signs changes in the audit log. ``script_time`` returns what scripts take as ``now_ms``: empty
    for the server's clock, milliseconds in simulations. ``checkpoint`` is called between two requests of work
    that needs many, and raises to abandon it. ``url`` is Redis' URL with the password masked.
    """

    settings: Settings
    redis: RedisClient
    clock: Clock = field(default_factory=SystemClock)
    waiter: Waiter = field(default_factory=SystemWaiter)
    archive: Archive | None = None
    auditor: Auditor = UNNAMED
    script_time: Callable[[], str | int] = str
    checkpoint: Callable[[], object] = bool
    keys: Keys = field(init=False)
    url: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", Keys(self.settings.redis.deployment))
        object.__setattr__(self, "url", without_password(self.settings.redis.url))

    @classmethod
    def open(cls, settings: Settings, auditor: Auditor = UNNAMED) -> Self:
        """Open clients for these settings' Redis and archive without a first request to either."""
        return cls(settings, open_store(settings.redis), archive=open_archive(settings), auditor=auditor)

    def require(self) -> None:
        """Raise `StoreUnavailable` where Redis cannot be used, or gives no first answer in `FIRST_ANSWER_S`.

        Later commands have longer: a page of rows may be large.
        """
        with open_store(self.settings.redis, answer_s=FIRST_ANSWER_S) as first:
            require(first, self.settings.redis.url)
        require_schema(self.redis, self.settings.redis)

    def close(self) -> None:
        """Close the connections to the archive and to Redis."""
        if self.archive is not None:
            self.archive.close()
        self.redis.close()

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Turn any failure of Redis inside the block into `StoreUnavailable`."""
        try:
            yield
        except RedisError as error:
            if refused := named(error, lambda: mistyped(self.redis, self.keys)):
                raise StoreRefuses(self.url, *refused) from error
            raise unavailable(self.url, error) from error

    def patience(self, run: str | None = None) -> Patience:
        """A `Patience` for reads while Redis may be away. ``run``: the run that the caller waits for."""
        return Patience(self.url, self.clock, self.checkpoint, run)

    @property
    def weights(self) -> Mapping[str, float]:
        """Weights of the teams that the settings name."""
        return {name: team.weight for name, team in self.settings.teams.items()}

    @property
    def runs(self) -> RunReader:
        """Reads runs' states and specs."""
        if self.archive is not None:
            return self.archive.runs(self.redis, self.keys)
        return RunReader(self.redis, self.keys)

    def records(self, spec: RunSpec) -> RecordReader:
        """Reads the records of a run's items."""
        if self.archive is not None:
            return self.archive.records(self.redis, self.keys, spec)
        return RecordReader(self.redis, self.keys, spec)

    def sessions(self, spec: RunSpec) -> SessionReader:
        """Reads the records of a run's sessions."""
        if self.archive is not None:
            return self.archive.sessions(self.redis, self.keys, spec)
        return SessionReader(self.redis, self.keys, spec)

    @property
    def outbox(self) -> Outbox:
        """Sends submissions and requests to the scheduler."""
        return Outbox(self.redis, self.keys)

    @property
    def reader(self) -> DeploymentReader:
        """Reads what concerns all teams: leader, queues, runs by team."""
        return DeploymentReader(self.redis, self.keys)

    @property
    def run_states(self) -> RunStates:
        """Reads the counters of active runs."""
        return RunStates(self.redis, self.keys)

    @property
    def lanes(self) -> Lanes:
        """Reads and changes lanes."""
        return Lanes(self.redis, self.keys, self.auditor)

    @property
    def history(self) -> History:
        """Reads lanes' samples over time."""
        return History(self.redis, self.keys)

    @property
    def budgets(self) -> Budgets:
        """Reads and changes teams' budgets."""
        return Budgets(self.redis, self.keys, self.auditor)

    @property
    def registry(self) -> Registry:
        """Reads and changes the teams that operators registered."""
        return Registry(self.redis, self.keys)

    @property
    def workers(self) -> Workers:
        """Reads workers' heartbeats and sends them requests."""
        return Workers(self.keys, self.auditor)

    def explainer(self, team: str, shares: Mapping[str, TeamSettings] | None = None) -> Explainer:
        """Explains what a team's jobs wait for; ``shares`` override the weights of the settings."""
        weights = {**self.weights, **{name: each.weight for name, each in (shares or {}).items()}}
        return Explainer(self.redis, self.keys, team, weights, self.script_time())

    def now_ms(self) -> int:
        """The deployment's time in milliseconds, by which all times in Redis are measured."""
        return self.time().now_ms

    def time(self) -> DeploymentTime:
        """The deployment's time, and how far it is ahead of Redis's own clock."""
        manual = self.script_time()
        return read_time(self.redis, self.keys) if manual == "" else DeploymentTime(int(manual))

    def is_led(self, now_ms: int | None = None) -> bool:
        """Whether a scheduler leads at ``now_ms``, by default now; true where this user may not read that."""
        try:
            leader = self.reader.leader()
        except NoPermissionError:
            return True
        return leader is not None and leader.until_ms > (self.now_ms() if now_ms is None else now_ms)

    def known_connections(self) -> frozenset[str] | None:
        """Connections that the scheduler has published; ``None`` if no scheduler ever led."""
        return self.directory().names

    def directory(self) -> LaneDirectory:
        """Maps models to lanes."""
        return LaneDirectory.read(self.redis, self.keys, self.settings.connections)

    def beats(self) -> list[Beat]:
        """Heartbeats of workers that have not left."""
        return Workers(self.keys).beats(self.redis)

    def shares(self, teams: Sequence[str]) -> dict[str, TeamSettings]:
        """Each team's share of a lane: as configured, and as operators changed it since."""
        configured = {team: self.settings.teams.get(team, TeamSettings()) for team in teams}
        registered = self.registry.all()
        return {
            team: registered[team].over(share) if team in registered else share
            for team, share in configured.items()
        }
