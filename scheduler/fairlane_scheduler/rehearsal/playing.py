"""Plays scenarios, one after another or several at a time, each on a server of its own."""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType

from fairlane_scheduler.rehearsal.backend import backend, quiet
from fairlane_scheduler.rehearsal.measure import Measure, measure
from fairlane_scheduler.rehearsal.picture import Curves, curves
from fairlane_scheduler.rehearsal.recording import Progress, record
from fairlane_scheduler.rehearsal.scenario import Scenario

TERMINATED = 128 + signal.SIGTERM


@dataclass(frozen=True, slots=True)
class Played:
    """What is left of a rehearsal: its numbers, and the course of each lane."""

    scenario: Scenario
    measure: Measure
    courses: tuple[Curves, ...]


def play(scenario: Scenario, progress: Progress | None = None) -> Played:
    """One scenario. Raises `LocalStackError` where no Redis can be had."""
    quiet()
    with backend() as redis:
        recording = record(scenario, redis, progress)
    courses = tuple(curves(recording, lane) for lane in recording.lanes.values())
    return Played(scenario, measure(recording), courses)


def play_all(scenarios: Sequence[Scenario], processes: int) -> Iterator[Played]:
    """All of them, as they are done; whatever ends the iteration early ends the processes too."""
    if processes == 1:
        yield from map(play, scenarios)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, _obey) as pool:
        yield from pool.imap_unordered(play, scenarios)


def _obey() -> None:
    """Leave Ctrl-C to the parent, which then terminates us; take our server along."""

    def end(_number: int, _frame: FrameType | None) -> None:
        sys.exit(TERMINATED)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, end)
