"""A process whose loop stands for five minutes ends; one that was merely stopped for longer does not."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from fairlane.telemetry.watchdog import STUCK, STUCK_LOOKS, Watchdog
from tests.support.wait import wait_until

SCRIPT = """
import sys, threading, time
from fairlane.config.sections import LogSettings
from fairlane.telemetry import watchdog
from fairlane.telemetry.log_stream import install_log_streams
from fairlane.telemetry.logs import configure_logging

watchdog.LOOK_S, watchdog.STUCK_LOOKS = 0.02, 50
install_log_streams()
configure_logging(LogSettings(), "me")
turned = time.monotonic()
watchdog.Watchdog(lambda: time.monotonic() - turned).start()

def stand_still():
    time.sleep(60)

def turn(seconds):
    global turned
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        turned = time.monotonic()
        time.sleep(0.01)

print("ready", flush=True)
if sys.argv[1] == "stand":
    stand_still()
turn(4)
print("well", flush=True)
"""


def looks(silences: list[float | None]) -> list[bool]:
    """Whether the process would end, by the seconds of silence at each look."""
    given_s: Iterator[float | None] = iter(silences)
    ended: list[bool] = []
    dog = Watchdog(lambda: next(given_s), end=lambda: None)
    with capture_logs():
        for _ in silences:
            ended.append(dog.look())
    return ended


def test_a_loop_that_never_turns_again_ends_its_process_after_so_many_looks() -> None:
    found = looks([float(second) for second in range(STUCK_LOOKS + 2)])
    assert found.index(True) == STUCK_LOOKS


def test_a_loop_that_has_not_begun_ends_nothing() -> None:
    assert not any(looks([None] * (STUCK_LOOKS * 2)))


def test_one_long_silence_without_looks_ends_nothing() -> None:
    assert not any(looks([0.5, 100_000.0, 0.2, 0.9] * STUCK_LOOKS))


@given(st.lists(st.integers(1, STUCK_LOOKS - 1), max_size=8))
def test_a_loop_that_turns_within_five_minutes_ends_nothing(stands: list[int]) -> None:
    assert not any(looks([float(second) for stand in stands for second in range(stand)]))


def test_the_log_has_the_stack_of_the_thread_that_stands() -> None:
    silent = iter(range(STUCK_LOOKS + 1))
    dog = Watchdog(lambda: float(next(silent)), end=lambda: None)
    with capture_logs() as logs:
        while not dog.look():
            pass
    (line,) = logs
    assert (line["event"], line["silent_s"]) == ("process_stuck", STUCK_LOOKS)
    assert any("test_the_log_has_the_stack" in frame for frame in line["frames"])


def started(how: str) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, how], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def test_a_real_process_that_stands_ends_with_2_and_says_where_it_stood() -> None:
    child = started("stand")
    out, err = child.communicate(timeout=30)
    assert child.returncode == STUCK
    assert "process_stuck" in out + err
    assert "stand_still" in out + err


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs POSIX")
def test_a_real_process_that_was_stopped_for_longer_goes_on() -> None:
    child = started("turn")
    child.send_signal(signal.SIGSTOP)
    stopped = time.monotonic()
    wait_until(lambda: time.monotonic() - stopped > 2.0)
    child.send_signal(signal.SIGCONT)
    out, _ = child.communicate(timeout=30)
    assert (child.returncode, out) == (0, "well\n")
