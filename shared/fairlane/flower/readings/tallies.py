"""Sums up active runs step by step: each call adds a bounded number of finished items."""

from __future__ import annotations

import heapq
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple

from fairlane.client.deployment import Deployment
from fairlane.client.views.summary import Summary
from fairlane.client.views.tally import Tally
from fairlane.core.errors import RunNotFound
from fairlane.core.lru import Lru
from fairlane.model.record import Record
from fairlane.model.run import RunRef, RunSpec, RunState
from fairlane.store.read.reading import RecordReader

KEPT = 100
"""Most runs whose sums are cached; the least recently used are summed up again on request."""

AT_ONCE = 250
SLOWEST = 10


class SlowCall(NamedTuple):
    """A task's last call, by how long it took."""

    latency_ms: int
    item: int
    model: str
    attempts: int


class Sums(NamedTuple):
    """Sums over a run's ``items`` so far, of which this call ``added`` some."""

    summary: Summary
    slowest: tuple[SlowCall, ...]
    items: int
    added: int


class Tallies:
    """Cached sums of the latest requested runs. Threads may share it."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment, self._lock = deployment, Lock()
        self._runs = Lru[RunRef, _Run](KEPT)

    def advance(self, ref: RunRef, spec: RunSpec, state: RunState, most: int) -> Sums:
        """Add up to ``most`` further items of a run; items that left Redis and archive are missing."""
        with self._lock:
            run = self._runs.get_or_make(ref, lambda: self._start(spec))
            before = run.items
            if not run.whole:
                with suppress(RunNotFound):
                    self._take(ref, run, before + most)
            slowest = tuple(sorted(run.slowest, reverse=True))
            return Sums(run.tally.summary(state), slowest, run.items, run.items - before)

    def _start(self, spec: RunSpec) -> _Run:
        return _Run(Tally(spec, self._deployment.settings.prices), self._reader(spec))

    def _take(self, ref: RunRef, run: _Run, until: int) -> None:
        while run.items < until:
            count = min(AT_ONCE, until - run.items)
            state, items = self._deployment.runs.finished(ref, run.items, count)
            for record in run.records.records(items):
                run.add(record)
            run.items += len(items)
            if len(items) < count:
                run.whole = state.finished
                return

    def _reader(self, spec: RunSpec) -> RecordReader:
        """A reader without rows, which sums do not need; the archive's records include them."""
        if self._deployment.archive is not None:
            return self._deployment.records(spec)
        return RecordReader(self._deployment.redis, self._deployment.keys, spec, rows=False)


@dataclass(slots=True)
class _Run:
    tally: Tally
    records: RecordReader
    items: int = 0
    whole: bool = False
    slowest: list[SlowCall] = field(default_factory=list)

    def add(self, record: Record) -> None:
        self.tally.add(record)
        if record.latency_ms is None or record.cached:
            return
        call = SlowCall(record.latency_ms, record.item, record.model, record.attempts)
        if len(self.slowest) < SLOWEST:
            heapq.heappush(self.slowest, call)
        else:
            heapq.heappushpop(self.slowest, call)
