"""Plays scenarios in this process or in several, each on a Redis server of its own."""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType

from fairlane.lab.rehearsal.recording import backend, quiet, record
from tests.benchmarks.control.figures import Figures, Trial, figures
from tests.benchmarks.control.picture import Curves, curves

TERMINATED = 128 + signal.SIGTERM


@dataclass(frozen=True, slots=True)
class Played:
    """The results of a rehearsal: its figures, and the curves of each lane."""

    scenario: Trial
    measure: Figures
    courses: tuple[Curves, ...]


def play(scenario: Trial) -> Played:
    """One scenario. Raises `LocalStackError` where no Redis can be had."""
    with quiet(), backend() as redis:
        recording = record(scenario, redis)
    courses = tuple(curves(recording, lane, scenario.about) for lane in recording.lanes.values())
    return Played(scenario, figures(recording), courses)


def play_all(scenarios: Sequence[Trial], processes: int) -> Iterator[Played]:
    """Play all, and yield each as it finishes; ending the iteration early ends the processes too."""
    if processes == 1:
        yield from map(play, scenarios)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, leave_interrupts_to_the_parent) as pool:
        yield from pool.imap_unordered(play, scenarios)


def leave_interrupts_to_the_parent() -> None:
    """Ignore Ctrl-C, which the parent handles; on SIGTERM exit, so that the server ends too."""

    def end(_number: int, _frame: FrameType | None) -> None:
        sys.exit(TERMINATED)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, end)
