"""Machines for a rate, computed from what was measured; `FORMULAS` says how, in the words of the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tests.benchmarks.scale import ladder
from tests.benchmarks.scale.deployment import Load
from tests.benchmarks.scale.grid import Cell
from tests.benchmarks.scale.ladder import Climb

TARGETS = (10, 100, 1000, 5000)

LATENCY_S = 2.0
"""Mean latency of the calls that machines are sized for."""

FULL = 0.6
"""The part of a core that a process may use in the mean: queues stay short, and a burst finds room."""

SPARE = 1.25
"""Slots ÷ the calls in flight on average (rate × latency, Little's law), since latencies vary."""

FORMULAS = (
    f"- **cores** of a role = rate × CPU a call at the nearest rate below that was reached\n"
    f"- **workers** = ⌈cores of all workers ÷ {FULL:g}⌉, at least 2, so that the loss of one is survived\n"
    f"- **slots** = rate × {LATENCY_S:g} s of latency × {SPARE:g}; in proportion for another latency\n"
    "- **memory** = resident memory of each process at rest + slots × memory a call in flight\n"
    f"- **cells** = ⌈cores of Redis or of the scheduler, the larger, ÷ {FULL:g}⌉: neither uses two cores\n"
)


@dataclass(frozen=True, slots=True)
class Costs:
    """``cpu_ms`` a call by role and rate, sorted; memory in MiB, of Redis in bytes."""

    redis: tuple[tuple[float, float], ...]
    scheduler: tuple[tuple[float, float], ...]
    worker: tuple[tuple[float, float], ...]
    scheduler_mb: float
    worker_mb: float
    slot_mb: float
    waiting_bytes: float
    record_bytes: float


@dataclass(frozen=True, slots=True)
class Machines:
    """What a rate needs. ``cores`` by role, of all workers together."""

    per_s: int
    redis_cores: float
    scheduler_cores: float
    worker_cores: float
    workers: int
    slots: int
    memory_mb: float
    cells: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Knee:
    """The most that was reached, and what each part alone would carry with a core of its own, calls/s.

    ``used`` is the part of the machine's cores in use then; ``fullest`` the process with the busiest core.
    """

    per_s: float
    workers: int
    lanes: int
    used: float
    fullest: str
    fullest_cores: float
    redis_per_s: float
    scheduler_per_s: float
    worker_per_s: float

    @property
    def first(self) -> str:
        """Of the two that a deployment has once, the one that is full first."""
        return "Redis" if self.redis_per_s <= self.scheduler_per_s else "the scheduler"

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "first": self.first}


def knee_of(cells: Sequence[Cell], cores: int) -> Knee:
    """The knee of a grid: its fastest cell."""
    best = max(cells, key=lambda cell: cell.load.per_s)
    used = {name: part for name, part in best.load.cores.items() if name != "submitter"}
    fullest = max(used, key=lambda name: used[name])
    load = best.load
    return Knee(
        per_s=load.per_s,
        workers=best.workers,
        lanes=best.lanes,
        used=sum(load.cores.values()) / cores,
        fullest=fullest,
        fullest_cores=used[fullest],
        redis_per_s=1000 / load.cpu_ms("redis"),
        scheduler_per_s=1000 / load.cpu_ms("scheduler"),
        worker_per_s=1000 / load.cpu_ms("worker"),
    )


def costs_of(cells: Sequence[Cell], noop: Sequence[Climb], http: Sequence[Climb], waiting: float) -> Costs:
    """What was measured, as the sizing needs it. A worker's part comes from calls over HTTP alone."""
    called = [(each.reached * each.rung.per_s, each.load) for each in http]
    free = [(each.reached * each.rung.per_s, each.load) for each in noop]
    every = [*called, *free, *((cell.load.per_s, cell.load) for cell in cells)]
    first, last = min(http, key=lambda each: each.rung.per_s), max(http, key=lambda each: each.rung.per_s)
    more = (last.reached * last.rung.per_s - first.reached * first.rung.per_s) * http_latency_s()
    return Costs(
        redis=_by_rate(every, "redis"),
        scheduler=_by_rate(every, "scheduler"),
        worker=_by_rate(called, "worker"),
        scheduler_mb=first.load.rss_mb["scheduler-1"],
        worker_mb=_worker_mb(first) / _workers(first),
        slot_mb=max(0.0, _worker_mb(last) - _worker_mb(first)) / more if more > 0 else 0.0,
        waiting_bytes=waiting,
        record_bytes=max(cells, key=lambda cell: cell.load.jobs).load.bytes_a_record,
    )


def machines(per_s: int, costs: Costs) -> Machines:
    """See `FORMULAS`."""
    redis, scheduler, all_workers = (
        per_s * _at(table, per_s) / 1000 for table in (costs.redis, costs.scheduler, costs.worker)
    )
    workers = max(2, math.ceil(all_workers / FULL))
    slots = math.ceil(per_s * LATENCY_S * SPARE)
    memory = costs.scheduler_mb + workers * costs.worker_mb + slots * costs.slot_mb
    cells = max(1, math.ceil(max(redis, scheduler) / FULL))
    return Machines(per_s, redis, scheduler, all_workers, workers, slots, memory, cells)


def http_latency_s() -> float:
    """Seconds that a call of the ladder is in flight: the mean of a lognormal is median × e^(sigma² ÷ 2)."""
    return ladder.LATENCY_S * math.exp(ladder.SIGMA**2 / 2)


def _by_rate(loads: Sequence[tuple[float, Load]], role: str) -> tuple[tuple[float, float], ...]:
    """CPU a call in ms by the rate that was reached."""
    return tuple(sorted((rate, load.cpu_ms(role)) for rate, load in loads))


def _at(table: Sequence[tuple[float, float]], per_s: float) -> float:
    below = [cost for rate, cost in table if rate <= per_s * 1.1]  # a rate that was reached is rarely round
    return below[-1] if below else table[0][1]


def _worker_mb(climb: Climb) -> float:
    return sum(mb for name, mb in climb.load.rss_mb.items() if name.startswith("worker"))


def _workers(climb: Climb) -> int:
    return sum(name.startswith("worker") for name in climb.load.rss_mb)
