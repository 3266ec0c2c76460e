"""Runs the scheduler loop, the only code that waits: for the next due time, a wake-up, or Redis."""

import threading
import time
from collections.abc import Callable
from typing import Any

from redis.exceptions import RedisError

from fairlane.core.clock import Clock
from fairlane.core.events import Event
from fairlane.store.connection.connect import RedisClient
from fairlane.store.connection.server_states import is_full
from fairlane.store.connection.tls_errors import in_words
from fairlane.store.read.mistyped import named
from fairlane.telemetry.logs import get_logger
from fairlane_scheduler.monitoring.serving import SchedulerHealth
from fairlane_scheduler.service import Scheduler

log = get_logger("runner")

QUANTUM_MS = 4  # one tick answers all wake-ups within so many milliseconds
AWAY_FIRST_S, AWAY_MOST_S = 0.1, 1.0
WARN_EVERY_MS = 60_000
READ_AT_ONCE = 1000
INBOX = "inbox:"


class StopEvent(threading.Event):
    """An event that a signal handler may set at any moment, even while its own thread waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self._cond = threading.Condition(threading.RLock())  # Event's own lock is not reentrant


class Runner:
    """Runs a scheduler until `stop` is called or ``stop`` is set; reconnects whenever Redis is lost."""

    def __init__(
        self,
        scheduler: Scheduler,
        redis: RedisClient,
        clock: Clock,
        health: SchedulerHealth,
        stop: threading.Event | None = None,
    ) -> None:
        self._scheduler, self._redis, self._clock = scheduler, redis, clock
        self._health = health
        self._stop = stop or StopEvent()
        self._away_s = 0.0
        self._warned_ms = 0
        self._on_ready: Callable[[], None] | None = None

    def stop(self) -> None:
        """End after the current tick. Safe in a signal handler."""
        self._stop.set()

    def run(self, on_ready: Callable[[], None] | None = None) -> None:
        """Tick and wait, until `stop`. ``on_ready`` is called once, after the first tick."""
        self._on_ready = on_ready
        while not self._stop.is_set():
            self._health.pass_began()
            try:
                with self._redis.pubsub(ignore_subscribe_messages=True) as wakeups:
                    wakeups.subscribe(self._scheduler.wake_channel)
                    self._loop(wakeups)
            except RedisError as error:
                why = in_words(error)
                self._health.pass_failed(why)
                self._warn(error, why)
                if is_full(error):
                    self._relieve()
                self._recover()
            except Exception as error:
                # A bug. It may have corrupted the state in memory, which the next term reads again.
                log.exception(Event.TICK_FAILED)
                self._health.pass_failed(f"the tick fails: {type(error).__name__}, see the log")
                self._recover()
        try:
            self._scheduler.resign()
        except (RedisError, OSError) as error:  # also of a broker whose connection has ended
            log.warning(Event.STORE_UNREACHABLE, error=str(error))

    def _warn(self, error: RedisError, why: str) -> None:
        """Log Redis' error: at once, and every `WARN_EVERY_MS` while no pass succeeds."""
        now_ms = self._clock.monotonic_ms()
        if not self._away_s or now_ms - self._warned_ms >= WARN_EVERY_MS:
            self._warned_ms = now_ms
            refused = named(error, lambda: self._scheduler.mistyped())
            log.warning(Event.STORE_UNREACHABLE, error=str(refused) if refused else why)

    def _relieve(self) -> None:
        """Let teams cancel and pause while Redis is full."""
        try:
            self._scheduler.relieve()
        except RedisError:
            pass  # the next pass tries again
        except Exception:
            log.exception(Event.TICK_FAILED)

    def _recover(self) -> None:
        self._away_s = min(AWAY_MOST_S, self._away_s * 2 or AWAY_FIRST_S)
        self._stop.wait(self._away_s)
        self._scheduler.store_came_back()

    def _loop(self, wakeups: Any) -> None:
        teams: set[str] | None = None
        while not self._stop.is_set():
            self._health.pass_began()
            started, exactly = self._clock.monotonic_ms(), time.perf_counter()
            wait_ms = self._scheduler.tick(teams)
            self._health.pass_succeeded(time.perf_counter() - exactly)
            self._after_tick()
            left_ms = started + QUANTUM_MS - self._clock.monotonic_ms()
            if left_ms > 0:
                time.sleep(left_ms / 1000)  # noqa: TID251 - only the runner waits
                wait_ms -= left_ms
            teams = self._listen(wakeups, wait_ms)

    def _after_tick(self) -> None:
        if self._away_s:
            log.info(Event.STORE_BACK)
            self._away_s = 0.0
        if self._on_ready is not None:
            self._on_ready()
            self._on_ready = None

    @staticmethod
    def _listen(wakeups: Any, wait_ms: int) -> set[str]:
        """Wait for a message or until the time is over; returns teams whose inbox was announced."""
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
