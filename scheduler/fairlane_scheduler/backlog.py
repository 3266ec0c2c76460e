"""What is waiting, as the leader knows it: active runs, and how many of their jobs each lane has queued."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fairlane.run import Plan
from fairlane.store.keys import RunRef
from fairlane_scheduler.lane_queue import LaneQueue

INTERACTIVE_PRIORITY = (
    1000  # above all that a run may ask for, and what it gains by waiting for a quarter of an hour
)


@dataclass(slots=True)
class ActiveRun:
    """A run that is not finished. ``cursor``: items looked at; ``task_lanes``: where its items have gone.

    ``rows``: how many there are so far, and ``open``: whether there will be more. Where some items go before
    the others, all are looked at twice: the cursor then goes to twice their number. ``open_ended``: a row
    decides its model, so items yet unread may go to lanes that nobody has seen. ``its_turn``: the item that a
    serial run handed out last may be over. ``paused``: nothing more of it is handed out.
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
    paused: bool = False
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
        return INTERACTIVE_PRIORITY if self.interactive else self.plan.spec.priority

    @property
    def interactive(self) -> bool:
        """Whether somebody waits for it."""
        return self.plan.spec.interactive

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
    """Runs, and queued jobs by lane, team and run. Counts are upper bounds until a grant tells what is
    left.
    """

    def __init__(self) -> None:
        self._runs: dict[RunRef, ActiveRun] = {}
        self._lanes: dict[str, LaneQueue] = {}

    def runs(self) -> Iterator[ActiveRun]:
        yield from list(self._runs.values())

    def get(self, ref: RunRef) -> ActiveRun | None:
        return self._runs.get(ref)

    def add_run(self, run: ActiveRun) -> None:
        self._runs[run.ref] = run

    def drop_run(self, ref: RunRef) -> None:
        """Forget a run that has ended."""
        self._runs.pop(ref, None)
        for lane in self._lanes.values():
            lane.settle(ref, 0)

    def lane(self, name: str) -> LaneQueue:
        """What is queued on a lane."""
        found = self._lanes.get(name)
        if found is None:
            found = self._lanes[name] = LaneQueue()
        return found

    def add(self, lane: str, ref: RunRef, count: int = 1) -> None:
        """Jobs of an active run have been queued on a lane."""
        run = self._runs.get(ref)
        if run is not None:
            self.lane(lane).add(ref, count, interactive=run.interactive)

    def settle(self, lane: str, ref: RunRef, left: int) -> None:
        """A grant told how many jobs are left."""
        run = self._runs.get(ref)
        self.lane(lane).settle(ref, left if run else 0, interactive=run is not None and run.interactive)

    def keep(self, lane: str, ref: RunRef, until_ms: int | None) -> None:
        """A run's own bounds hold it back on a lane, until a moment (server time) or until the lane is
        woken.
        """
        self.lane(lane).keep(ref, until_ms)

    def release(self, lane: str) -> None:
        """The lane was woken: no run is held back on it any more."""
        self.lane(lane).release()

    def release_all(self) -> None:
        for lane in self._lanes.values():
            lane.release()

    def release_due(self, now_ms: int) -> int | None:
        """Let go of what is due (server time). Returns when the next is."""
        due = [next_ms for lane in self._lanes.values() if (next_ms := lane.release_due(now_ms)) is not None]
        return min(due, default=None)

    def queued(self, lane: str) -> dict[RunRef, int]:
        """Jobs queued on a lane, by run; only runs that have some, and that are not held back."""
        return {ref: left for runs in self.lane(lane).waiting.values() for ref, left in runs.items()}

    def count(self, lane: str, ref: RunRef) -> int:
        return self.lane(lane).count(ref)

    def waiting_lanes(self) -> list[str]:
        """Lanes on which something is queued that is not held back."""
        return [name for name, lane in self._lanes.items() if lane.waiting]

    def depth(self, lane: str) -> int:
        """Jobs queued on a lane, over all runs."""
        return self.lane(lane).depth
