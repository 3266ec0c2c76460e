"""The runner: ticks, sleeps, wakes, and survives the loss of Redis and defects of its scheduler."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, cast

import fakeredis
import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from structlog.testing import capture_logs

from fairlane.core.clock import ManualClock, SystemClock
from fairlane.store.keys import Keys
from fairlane_scheduler import runner as running
from fairlane_scheduler.command import stopped_by_signals
from fairlane_scheduler.monitoring.serving import SchedulerHealth
from fairlane_scheduler.runner import Runner
from fairlane_scheduler.service import Scheduler

WAKE = Keys("test").wake
HEALTH = SchedulerHealth(SystemClock(), 1.0, lambda seconds: None)


class ScriptedScheduler:
    """Each tick does the next thing of a script; after the last the runner is stopped."""

    wake_channel = WAKE

    def __init__(self, *script: Callable[[], int]) -> None:
        self.script, self.teams, self.came_back, self.resigned = list(script), list[Any](), 0, 0
        self.runner: Runner

    def tick(self, teams: Any) -> int:
        self.teams.append(teams)
        step = self.script.pop(0)
        if not self.script:
            self.runner.stop()
        return step()

    def store_came_back(self) -> None:
        self.came_back += 1

    def resign(self) -> None:
        self.resigned += 1


def drive(scheduler: ScriptedScheduler, redis: Redis, on_ready: Callable[[], None] | None = None) -> None:
    scheduler.runner = Runner(cast(Scheduler, scheduler), redis, SystemClock(), HEALTH)
    scheduler.runner.run(on_ready)


def wait(milliseconds: int = 0) -> Callable[[], int]:
    return lambda: milliseconds


def raises(error: Exception) -> Callable[[], int]:
    def step() -> int:
        raise error

    return step


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "AWAY_FIRST_S", 0.001)
    monkeypatch.setattr(running, "AWAY_MOST_S", 0.002)


def test_it_ticks_until_it_is_stopped_and_then_resigns(fake_redis: Redis) -> None:
    scheduler = ScriptedScheduler(wait(), wait(), wait())

    drive(scheduler, fake_redis)

    assert (len(scheduler.teams), scheduler.resigned) == (3, 1)


def test_the_first_tick_looks_into_every_inbox_and_later_ones_into_the_announced(fake_redis: Redis) -> None:
    def announce() -> int:
        fake_redis.publish(WAKE, "inbox:search")
        fake_redis.publish(WAKE, "")
        fake_redis.publish(WAKE, b"inbox:\xff")
        return 10_000

    scheduler = ScriptedScheduler(announce, wait(), wait(), wait())

    drive(scheduler, fake_redis)

    first, *later = scheduler.teams
    assert first is None
    assert sorted(team for teams in later for team in teams) == ["search", "\N{REPLACEMENT CHARACTER}"]


def test_a_message_ends_the_sleep(fake_redis: Redis) -> None:
    sleeping = threading.Event()

    def sleep() -> int:
        sleeping.set()
        return 60_000

    def wake() -> None:
        sleeping.wait(10)
        fake_redis.publish(WAKE, "")

    waker = threading.Thread(target=wake)
    waker.start()
    drive(ScriptedScheduler(sleep, wait()), fake_redis)
    waker.join()


def test_readiness_is_reported_once_after_the_first_tick(fake_redis: Redis) -> None:
    shown: list[int] = []
    scheduler = ScriptedScheduler(raises(RedisConnectionError("not yet")), wait(), wait())

    drive(scheduler, fake_redis, lambda: shown.append(len(scheduler.teams)))

    assert shown == [2]


def test_a_redis_that_goes_away_is_reported_once_and_everything_is_read_anew(fake_redis: Redis) -> None:
    gone = raises(RedisConnectionError("gone"))
    scheduler = ScriptedScheduler(wait(), gone, gone, gone, wait(), wait())

    with capture_logs() as logs:
        drive(scheduler, fake_redis)

    assert [line["event"] for line in logs] == ["store_unreachable", "store_back"]
    assert scheduler.came_back == 3
    assert scheduler.teams[4] is None, "announcements may have been missed"


def test_a_redis_that_cannot_be_subscribed_to_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    server = fakeredis.FakeServer()
    with fakeredis.FakeRedis(server=server) as redis:
        server.connected = False
        scheduler = ScriptedScheduler(wait())
        monkeypatch.setattr(
            scheduler, "store_came_back", lambda: setattr(server, "connected", True), raising=True
        )

        drive(scheduler, redis)

    assert len(scheduler.teams) == 1


def test_a_defect_is_reported_loudly_and_does_not_end_the_process(fake_redis: Redis) -> None:
    scheduler = ScriptedScheduler(raises(ZeroDivisionError()), wait())

    with capture_logs() as logs:
        drive(scheduler, fake_redis)

    assert (logs[0]["event"], logs[0]["log_level"]) == ("tick_failed", "error")
    assert scheduler.came_back == 1


def test_a_defect_is_why_a_scheduler_is_not_ready(fake_redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    health = SchedulerHealth(SystemClock(), 1.0, lambda seconds: None)
    monkeypatch.setattr("tests.unit.test_scheduler_runner.HEALTH", health)
    drive(ScriptedScheduler(raises(ZeroDivisionError())), fake_redis)
    assert health.unready() == "no pass has succeeded yet: the tick fails: ZeroDivisionError, see the log"


def test_stopping_while_redis_is_away_ends_the_runner(fake_redis: Redis) -> None:
    scheduler = ScriptedScheduler(raises(RedisConnectionError("gone")))

    drive(scheduler, fake_redis)

    assert scheduler.resigned == 1


def test_a_resignation_that_cannot_be_reported_is_no_failure(fake_redis: Redis) -> None:
    scheduler = ScriptedScheduler(wait())
    scheduler.resign = raises(RedisConnectionError("gone"))  # type: ignore[assignment,method-assign]

    drive(scheduler, fake_redis)


def test_wake_ups_close_together_are_answered_by_one_tick(fake_redis: Redis) -> None:
    def burst() -> int:
        for _ in range(50):
            fake_redis.publish(WAKE, "")
        return 10_000

    scheduler = ScriptedScheduler(burst, burst, wait())

    drive(scheduler, fake_redis)

    assert len(scheduler.teams) == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_scheduler_starts_ends_it_before_its_first_tick(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stopped_by_signals() as stop:
        signal.raise_signal(number)
    assert signal.getsignal(number) is before
    scheduler = ScriptedScheduler(wait())
    with fakeredis.FakeRedis() as redis:
        Runner(cast(Scheduler, scheduler), redis, SystemClock(), HEALTH, stop).run()
    assert (scheduler.teams, scheduler.resigned) == ([], 1)


def test_a_fault_that_lasts_is_logged_again(fake_redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()

    def fail() -> int:
        clock.advance(25)
        raise ResponseError("unknown command 'SCAN'")

    scheduler = ScriptedScheduler(*[fail] * 8)
    scheduler.runner = Runner(cast(Scheduler, scheduler), fake_redis, clock, HEALTH)
    with capture_logs() as logs:
        scheduler.runner.run()

    said = [line["error"] for line in logs if line["event"] == "store_unreachable"]
    assert [each.partition(".")[0] for each in said] == ["this server has no SCAN"] * 3, "of 200 s"


def test_a_fault_of_no_redis_is_a_defect_and_is_survived(fake_redis: Redis) -> None:
    scheduler = ScriptedScheduler(raises(BrokenPipeError(32, "Broken pipe")), wait())

    with capture_logs() as logs:
        drive(scheduler, fake_redis)

    assert [line["event"] for line in logs] == ["tick_failed", "store_back"]


SIGNALS_AT_EACH_LINE = """
import signal, sys, threading
from fairlane_scheduler.command import stopped_by_signals

def play(line):
    left = [line]
    def trace(frame, event, arg):
        if event == "line" and frame.f_code.co_filename == threading.__file__:
            left[0] -= 1
            if left[0] in (0, -1):
                signal.raise_signal(signal.SIGTERM)
        return trace
    with stopped_by_signals() as stop:
        sys.settrace(trace)
        stop.wait(0.001)
        stop.set()
        sys.settrace(None)
        assert stop.is_set()
    return left[0] < 0

line = 1
while play(line):
    line += 1
print(line)
"""


def test_signals_at_any_line_of_a_wait_are_obeyed() -> None:
    command = [sys.executable, "-c", SIGNALS_AT_EACH_LINE]

    played = subprocess.run(command, capture_output=True, text=True, timeout=20)

    assert int(played.stdout) > 20, played.stderr
