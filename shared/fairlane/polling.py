"""Looking again until something has happened: how often, how long at most, and through a restart of Redis."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from redis.exceptions import AuthenticationError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from fairlane.clock import Clock
from fairlane.errors import StoreUnavailable

SHORTEST_WAIT_S = 0.05
LONGEST_WAIT_S = 0.5
SILENCE_BORNE_S = 60.0
"""How long Redis may be away while a client waits; reading a large append-only file takes less."""

T = TypeVar("T")


class Waiter(Protocol):
    """What lets time pass between two looks."""

    def wait(self, seconds: float) -> None:
        """Return after ``seconds``."""
        ...


class SystemWaiter:
    """Waits for real."""

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: TID251 - a blocking client's one place to wait; tests inject another


class Pace:
    """How long to wait before looking again: half as long again each time, from 50 ms to 500 ms."""

    def __init__(self) -> None:
        self._next_s = SHORTEST_WAIT_S

    def next_s(self, longest: float = LONGEST_WAIT_S) -> float:
        """Seconds to wait now, ``longest`` at most."""
        now, self._next_s = self._next_s, min(self._next_s * 1.5, LONGEST_WAIT_S)
        return min(now, longest)

    def restart(self) -> None:
        """Something happened: look soon."""
        self._next_s = SHORTEST_WAIT_S


class Patience:
    """Reads from a Redis that may be away for a while; gives up after `SILENCE_BORNE_S` without an answer."""

    def __init__(self, url: str, clock: Clock, waiter: Waiter) -> None:
        self._url, self._clock, self._waiter = url, clock, waiter
        self._silent_since: int | None = None

    @property
    def silence_s(self) -> float:
        """For how long Redis has not answered; 0 if it did."""
        if self._silent_since is None:
            return 0.0
        return (self._clock.monotonic_ms() - self._silent_since) / 1000

    def ask(self, read: Callable[[], T]) -> T | None:
        """What ``read`` says, or ``None`` while Redis is away. Raises `StoreUnavailable` when that lasts."""
        try:
            answer = read()
        except AuthenticationError as error:
            raise StoreUnavailable(self._url, str(error)) from error
        except (RedisConnectionError, RedisTimeoutError) as error:
            if self._silent_since is None:
                self._silent_since = self._clock.monotonic_ms()
            if self.silence_s >= SILENCE_BORNE_S:
                raise StoreUnavailable(
                    self._url, f"no answer for {self.silence_s:.0f} s ({error})"
                ) from error
            return None
        except RedisError as error:
            raise StoreUnavailable(self._url, f"the server answered {error}") from error
        self._silent_since = None
        return answer

    def insist(self, read: Callable[[], T]) -> T:
        """What ``read`` says, after waiting for Redis where need be."""
        pace = Pace()
        while (answer := self.ask(read)) is None:
            self._waiter.wait(pace.next_s())
        return answer
