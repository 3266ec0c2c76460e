"""The one place in a scheduler that waits: for the next thing due, for a wake-up, for Redis to come back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from redis.exceptions import RedisError

from fairlane.clock import Clock
from fairlane.events import Event
from fairlane.logs import get_logger
from fairlane.store.connect import RedisClient
from fairlane.store.trust import in_words
from fairlane_scheduler.service import Scheduler

log = get_logger("runner")

QUANTUM_MS = 4  # wake-ups closer together than this are answered by one tick
AWAY_FIRST_S, AWAY_MOST_S = 0.1, 1.0
READ_AT_ONCE = 1000
INBOX = "inbox:"


class Watch(Protocol):
    """Hears whether the loop turns."""

    def turned(self) -> None:
        """It begins another pass, or waits for Redis to come back."""
        ...

    def ticked(self, seconds: float) -> None:
        """A pass succeeded, and took so long."""
        ...


class Unwatched:
    """Nobody listens."""

    def turned(self) -> None:
        pass

    def ticked(self, seconds: float) -> None:
        pass


class Runner:
    """Drives a scheduler until it is told to stop, through every loss of Redis."""

    def __init__(
        self, scheduler: Scheduler, redis: RedisClient, clock: Clock, watch: Watch | None = None
    ) -> None:
        self._scheduler, self._redis, self._clock = scheduler, redis, clock
        self._watch = watch or Unwatched()
        self._stop = threading.Event()
        self._away_s = 0.0
        self._on_ready: Callable[[], None] | None = None

    def stop(self) -> None:
        """End after the current tick. Safe in a signal handler."""
        self._stop.set()

    def run(self, on_ready: Callable[[], None] | None = None) -> None:
        """Tick and wait, until `stop`. ``on_ready`` is called once, after the first tick."""
        self._on_ready = on_ready
        while not self._stop.is_set():
            self._watch.turned()
            try:
                with self._redis.pubsub(ignore_subscribe_messages=True) as wakeups:
                    wakeups.subscribe(self._scheduler.wake_channel)
                    self._loop(wakeups)
            except (RedisError, OSError) as error:
                if not self._away_s:
                    log.warning(Event.STORE_UNREACHABLE, error=in_words(error))
                self._recover()
            except Exception:
                # A defect. What is known may be wrong by it, and can all be read again.
                log.exception("tick_failed")
                self._recover()
        try:
            self._scheduler.resign()
        except (RedisError, OSError) as error:
            log.warning(Event.STORE_UNREACHABLE, error=str(error))

    def _recover(self) -> None:
        self._away_s = min(AWAY_MOST_S, self._away_s * 2 or AWAY_FIRST_S)
        self._stop.wait(self._away_s)
        self._scheduler.store_came_back()

    def _loop(self, wakeups: Any) -> None:
        teams: set[str] | None = None
        while not self._stop.is_set():
            self._watch.turned()
            started, exactly = self._clock.monotonic_ms(), time.perf_counter()
            wait_ms = self._scheduler.tick(teams)
            self._watch.ticked(time.perf_counter() - exactly)
            self._ticked()
            rest_ms = started + QUANTUM_MS - self._clock.monotonic_ms()
            if rest_ms > 0:
                time.sleep(rest_ms / 1000)  # noqa: TID251 - the runner is what waits
                wait_ms -= rest_ms
            teams = self._listen(wakeups, wait_ms)

    def _ticked(self) -> None:
        if self._away_s:
            log.info(Event.STORE_BACK)
            self._away_s = 0.0
        if self._on_ready is not None:
            self._on_ready()
            self._on_ready = None

    @staticmethod
    def _listen(wakeups: Any, wait_ms: int) -> set[str]:
        """Teams whose inbox was announced, once anything was published or the time is over."""
        teams: set[str] = set()
        message = wakeups.get_message(timeout=max(0, wait_ms) / 1000)
        for _ in range(READ_AT_ONCE):
            if message is None:
                break
            text = message["data"].decode(errors="replace")
            if text.startswith(INBOX):
                teams.add(text.removeprefix(INBOX))
            message = wakeups.get_message(timeout=0)
        return teams
