"""Sums of runs that go on: each look takes in some more of the items that are over, so that none is long."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple

from fairlane.errors import RunNotFound
from fairlane.link import Link
from fairlane.run import Record, RunSpec, RunState
from fairlane.store.keys import RunRef
from fairlane.store.reading import RecordReader
from fairlane.summary import Summary, Tally

KEPT = 100
"""Runs whose sums are kept; those looked at least lately are summed up anew when they are asked for."""

AT_ONCE = 250
SLOWEST = 10


class SlowCall(NamedTuple):
    """A task's last call, by how long it took."""

    latency_ms: int
    item: int
    model: str
    attempts: int


class Sums(NamedTuple):
    """What is known of a run so far. ``items`` of those that are over are in it, ``added`` by this look."""

    summary: Summary
    slowest: tuple[SlowCall, ...]
    items: int
    added: int


class Tallies:
    """Sums of the runs that were looked at last. May be shared by threads."""

    def __init__(self, link: Link) -> None:
        self._link, self._lock = link, Lock()
        self._runs: OrderedDict[RunRef, _Run] = OrderedDict()

    def advance(self, ref: RunRef, spec: RunSpec, state: RunState, most: int) -> Sums:
        """Take in up to ``most`` further items of a run; what is gone from Redis and archive is left out."""
        with self._lock:
            run = self._runs.get(ref) or _Run(Tally(spec, self._link.prices), self._reader(spec))
            self._runs[ref] = run
            self._runs.move_to_end(ref)
            while len(self._runs) > KEPT:
                self._runs.popitem(last=False)
            before = run.items
            if not run.whole:
                with suppress(RunNotFound):
                    self._take(ref, run, before + most)
            slowest = tuple(sorted(run.slowest, reverse=True))
            return Sums(run.tally.summary(state), slowest, run.items, run.items - before)

    def _take(self, ref: RunRef, run: _Run, until: int) -> None:
        while run.items < until:
            count = min(AT_ONCE, until - run.items)
            state, items = self._link.runs.finished(ref, run.items, count)
            for record in run.records.records(items):
                run.add(record)
            run.items += len(items)
            if len(items) < count:
                run.whole = state.finished
                return

    def _reader(self, spec: RunSpec) -> RecordReader:
        """Rows are not needed; what lies in the archive brings them along."""
        if self._link.archive is not None:
            return self._link.records(spec)
        return RecordReader(self._link.redis, self._link.keys, spec, rows=False)


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
