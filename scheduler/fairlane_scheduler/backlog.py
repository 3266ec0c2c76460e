"""What is waiting, as the leader knows it: active runs, and how many of their jobs each lane has queued."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fairlane.run import Plan
from fairlane.store.keys import RunRef


@dataclass(slots=True)
class ActiveRun:
    """A run that is not finished. ``cursor``: items looked at; ``task_lanes``: where its items have gone.

    ``rows``: how many there are so far, and ``open``: whether there will be more. Where some items go before
    the others, all are looked at twice: the cursor then goes to twice their number. ``open_ended``: a row
    decides its model, so items yet unread may go to lanes that nobody has seen. ``its_turn``: the item that a
    serial run handed out last may be over.
    """

    ref: RunRef
    plan: Plan
    cursor: int = 0
    task_lanes: set[str] = field(default_factory=set)
    rows: int = 0
    open: bool = False
    started_ms: int = 0
    its_turn: bool = True
    over: bool = False
    open_ended: bool = field(init=False)

    def __post_init__(self) -> None:
        self.open_ended = any("{" in model for model in self.plan.spec.models)
        self.rows, self.open = self.rows or self.plan.spec.rows, self.open or self.plan.spec.open

    def left_ms(self, server_ms: int) -> int | None:
        """Milliseconds until its time is over; ``None`` where it may take any."""
        most = self.plan.spec.bounds.max_duration
        return None if most is None else self.started_ms + round(most * 1000) - server_ms

    @property
    def priority(self) -> int:
        return self.plan.spec.priority

    @property
    def items(self) -> int:
        return self.rows * self.plan.spec.cells_per_row

    @property
    def passes(self) -> int:
        return 2 if self.plan.spec.order.serial_field is not None else 1

    @property
    def serial(self) -> bool:
        """Whether the items at the cursor go one at a time."""
        return self.plan.spec.order.serial or (self.passes == 2 and self.cursor < self.items)

    @property
    def supplied(self) -> bool:
        """Whether every item that there is has been handed out."""
        return self.cursor >= self.items * self.passes

    @property
    def fed(self) -> bool:
        """Whether every item that there will ever be has been handed out."""
        return self.supplied and not self.open


class Backlog:
    """Runs, and queued jobs by lane and run. Counts are upper bounds until a grant tells what is left."""

    def __init__(self) -> None:
        self._runs: dict[RunRef, ActiveRun] = {}
        self._queued: dict[str, dict[RunRef, int]] = {}
        self._kept: dict[str, dict[RunRef, int | None]] = {}

    def runs(self) -> Iterator[ActiveRun]:
        yield from list(self._runs.values())

    def get(self, ref: RunRef) -> ActiveRun | None:
        return self._runs.get(ref)

    def add_run(self, run: ActiveRun) -> None:
        self._runs[run.ref] = run

    def drop_run(self, ref: RunRef) -> None:
        """Forget a run that has ended."""
        self._runs.pop(ref, None)
        for queued in self._queued.values():
            queued.pop(ref, None)
        for kept in self._kept.values():
            kept.pop(ref, None)

    def add(self, lane: str, ref: RunRef, count: int = 1) -> None:
        """Jobs of an active run have been queued on a lane."""
        self._kept.get(lane, {}).pop(ref, None)
        if ref in self._runs:
            queued = self._queued.setdefault(lane, {})
            queued[ref] = queued.get(ref, 0) + count

    def settle(self, lane: str, ref: RunRef, left: int) -> None:
        """A grant told how many jobs are left."""
        if left > 0 and ref in self._runs:
            self._queued.setdefault(lane, {})[ref] = left
        else:
            self._queued.get(lane, {}).pop(ref, None)

    def keep(self, lane: str, ref: RunRef, until_ms: int | None) -> None:
        """A run's own bounds hold it back on a lane, until a moment (server time) or until the lane is
        woken.
        """
        if ref in self._runs:
            self._kept.setdefault(lane, {})[ref] = until_ms

    def release(self, lane: str) -> None:
        """The lane was woken: no run is held back on it any more."""
        self._kept.pop(lane, None)

    def release_all(self) -> None:
        self._kept.clear()

    def release_due(self, now_ms: int) -> int | None:
        """Let go of what is due (server time). Returns when the next is."""
        next_ms: int | None = None
        for kept in self._kept.values():
            for ref, until_ms in list(kept.items()):
                if until_ms is None:
                    continue
                if until_ms <= now_ms:
                    del kept[ref]
                else:
                    next_ms = until_ms if next_ms is None else min(next_ms, until_ms)
        return next_ms

    def queued(self, lane: str) -> dict[RunRef, int]:
        """Jobs queued on a lane, by run; only runs that have some, and that are not held back."""
        queued, kept = self._queued.get(lane, {}), self._kept.get(lane)
        return {ref: n for ref, n in queued.items() if ref not in kept} if kept else queued

    def count(self, lane: str, ref: RunRef) -> int:
        return self._queued.get(lane, {}).get(ref, 0)

    def waiting_lanes(self) -> list[str]:
        """Lanes on which something is queued that is not held back."""
        return [lane for lane in self._queued if self.queued(lane)]

    def depth(self, lane: str) -> int:
        """Jobs queued on a lane, over all runs."""
        return sum(self._queued.get(lane, {}).values())
