"""The one place in a scheduler that waits: for the next thing due, for a wake-up, for Redis to come back."""

from __future__ import annotations

import threading
import time
from typing import Any

from redis.exceptions import RedisError

from fairlane.clock import Clock
from fairlane.events import Event
from fairlane.logs import get_logger
from fairlane.store.connect import RedisClient
from fairlane_scheduler.service import Scheduler

log = get_logger("runner")

QUANTUM_MS = 4  # wake-ups closer together than this are answered by one tick
AWAY_FIRST_S, AWAY_MOST_S = 0.1, 1.0
INBOX = "inbox:"


class Runner:
    """Drives a scheduler until it is told to stop, through every loss of Redis."""

    def __init__(self, scheduler: Scheduler, redis: RedisClient, clock: Clock) -> None:
        self._scheduler, self._redis, self._clock = scheduler, redis, clock
        self._stop = threading.Event()
        self._started = threading.Event()

    def stop(self) -> None:
        """End after the current tick. Safe in a signal handler."""
        self._stop.set()

    def run(self, on_ready: Any = None) -> None:
        """Tick and wait, until `stop`. ``on_ready`` is called once, after the first tick."""
        away_s, ready = 0.0, on_ready
        while not self._stop.is_set():
            try:
                with self._redis.pubsub(ignore_subscribe_messages=True) as wakeups:
                    wakeups.subscribe(self._scheduler.wake_channel)
                    if away_s:
                        log.info(Event.STORE_BACK)
                        away_s = 0.0
                        self._scheduler.store_came_back()
                    self._loop(wakeups, ready)
            except (RedisError, OSError) as error:
                if not away_s:
                    log.warning(Event.STORE_UNREACHABLE, error=str(error))
                away_s = min(AWAY_MOST_S, away_s * 2 or AWAY_FIRST_S)
                self._stop.wait(away_s)
        try:
            self._scheduler.resign()
        except (RedisError, OSError) as error:
            log.warning(Event.STORE_UNREACHABLE, error=str(error))

    def _loop(self, wakeups: Any, on_ready: Any) -> None:
        teams: set[str] | None = None
        while not self._stop.is_set():
            started = self._clock.monotonic_ms()
            wait_ms = self._scheduler.tick(teams)
            if on_ready is not None:
                on_ready()
                on_ready = None
            rest_ms = started + QUANTUM_MS - self._clock.monotonic_ms()
            if rest_ms > 0:
                time.sleep(rest_ms / 1000)  # noqa: TID251 - the runner is what waits
                wait_ms -= rest_ms
            teams = self._listen(wakeups, wait_ms)

    @staticmethod
    def _listen(wakeups: Any, wait_ms: int) -> set[str]:
        teams: set[str] = set()
        message = wakeups.get_message(timeout=max(0, wait_ms) / 1000)
        while message is not None:
            text = message["data"].decode(errors="replace") if isinstance(message["data"], bytes) else ""
            if text.startswith(INBOX):
                teams.add(text.removeprefix(INBOX))
            message = wakeups.get_message(timeout=0)
        return teams
