"""Plays the learner and the blind learner alone, to show what knowing a world's form is worth."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from rich.table import Table

from tests.benchmarks.control.player import leave_interrupts_to_the_parent
from tests.benchmarks.zoo.classes import CLASSES, classes_of
from tests.benchmarks.zoo.generator import FULL, Size, generate
from tests.benchmarks.zoo.learner import Learned, learn
from tests.benchmarks.zoo.measure import quantile
from tests.benchmarks.zoo.oracle import best_schedule

COLUMNS = ("", "worlds", "learner 50 %", "learner 5 %", "blind 50 %", "blind 5 %", "refused 50 %",
           "refused 95 %", "blind 50 %", "blind 95 %")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shares:
    """Both learners in one world: each one's successes by the oracle's, and the share refused, 0 to 1."""

    seed: int
    classes: tuple[str, ...]
    used: tuple[float, float]
    refused: tuple[float, float]


def shares_of(seed: int, size: Size = FULL) -> Shares:
    """Play the world of a seed with the learner, and with the blind one."""
    world = generate(seed, size)
    whole = len(best_schedule(world).times_ms)
    told, blind = learn(world), learn(world, blind=True)
    return Shares(
        seed,
        classes_of(world, whole),
        (_used(told, whole), _used(blind, whole)),
        (told.refused / max(1, told.calls), blind.refused / max(1, blind.calls)),
    )


def play_learners(seeds: Sequence[int], processes: int, size: Size = FULL) -> Iterator[Shares]:
    """Play all seeds, and yield each one's shares as it finishes."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, leave_interrupts_to_the_parent) as pool:
        yield from pool.imap_unordered(partial(shares_of, size=size), seeds)


def table(found: Sequence[Shares]) -> Table:
    """The shares by class, as a terminal shows them."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(COLUMNS):
        shown.add_column(column, justify="left" if number == 0 else "right", no_wrap=True)
    for name in CLASSES:
        group = [shares for shares in found if name in shares.classes]
        if group:
            shown.add_row(*_row(name, group))
    return shown


def _row(name: str, group: Sequence[Shares]) -> tuple[str, ...]:
    used = [f"{quantile([s.used[who] for s in group], part):.3f}" for who in (0, 1) for part in (0.5, 0.05)]
    refused = [
        f"{quantile([s.refused[who] for s in group], part):.2%}" for who in (0, 1) for part in (0.5, 0.95)
    ]
    return (name, str(len(group)), *used, *refused)


def _used(learned: Learned, whole: int) -> float:
    return len(learned.schedule.times_ms) / whole if whole else 1.0
