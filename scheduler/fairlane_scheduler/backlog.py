"""What is waiting, as the leader knows it: active runs, and how many of their jobs each lane has queued."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fairlane.run import Plan
from fairlane.store.keys import RunRef


@dataclass(slots=True)
class ActiveRun:
    """A run that is not finished. ``cursor``: items handed out; ``task_lanes``: where its items have gone.

    ``open_ended``: a row decides its model, so items yet unread may go to lanes that nobody has seen.
    """

    ref: RunRef
    plan: Plan
    cursor: int = 0
    task_lanes: set[str] = field(default_factory=set)
    open_ended: bool = field(init=False)

    def __post_init__(self) -> None:
        self.open_ended = any("{" in model for model in self.plan.spec.models)

    @property
    def priority(self) -> int:
        return self.plan.spec.priority

    @property
    def fed(self) -> bool:
        """Whether every item has been handed out."""
        return self.cursor >= self.plan.spec.items


class Backlog:
    """Runs, and queued jobs by lane and run. Counts are upper bounds until a grant tells what is left."""

    def __init__(self) -> None:
        self._runs: dict[RunRef, ActiveRun] = {}
        self._queued: dict[str, dict[RunRef, int]] = {}

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

    def add(self, lane: str, ref: RunRef, count: int = 1) -> None:
        """Jobs of an active run have been queued on a lane."""
        if ref in self._runs:
            queued = self._queued.setdefault(lane, {})
            queued[ref] = queued.get(ref, 0) + count

    def settle(self, lane: str, ref: RunRef, left: int) -> None:
        """A grant told how many jobs are left."""
        if left > 0 and ref in self._runs:
            self._queued.setdefault(lane, {})[ref] = left
        else:
            self._queued.get(lane, {}).pop(ref, None)

    def queued(self, lane: str) -> dict[RunRef, int]:
        """Jobs queued on a lane, by run; only runs that have some."""
        return self._queued.get(lane, {})

    def count(self, lane: str, ref: RunRef) -> int:
        return self._queued.get(lane, {}).get(ref, 0)

    def waiting_lanes(self) -> list[str]:
        """Lanes on which something is queued."""
        return [lane for lane, queued in self._queued.items() if queued]

    def depth(self, lane: str) -> int:
        """Jobs queued on a lane, over all runs."""
        return sum(self._queued.get(lane, {}).values())
