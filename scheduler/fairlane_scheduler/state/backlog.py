"""The leader's count of queued jobs: active runs, and the jobs of each on every lane."""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from fairlane.model.choices import Source
from fairlane.model.run import Plan, RunRef

# Above every priority that a run may set, plus what a run gains by waiting for a quarter of an hour.
INTERACTIVE_PRIORITY = 1000

REFUSED = "request_refused"
"""The bound of a run whose jobs are held on a lane after refusals (``lib/run/model_refusals.lua``)."""


@dataclass(slots=True)
class Measured:
    """Sums over a run's first pages: how many are measured, their bytes, and how many are missing."""

    ref: RunRef
    first: int = 0
    total: int = 0
    missing: int = 0


@dataclass(slots=True)
class ActiveRun:
    """A run that has not finished.

    ``cursor``: items scanned so far; if some rows go first, every item is scanned twice and the cursor ends
    at twice their number. Where conversations go side by side, ``cursor`` counts fed items and ``scanned``
    scanned ones. ``task_lanes``: lanes on which its tasks were queued. ``rows``: rows so far; ``open``: the
    client may add more. ``may_feed_next``: an item that others wait for may have ended. ``ended``: it ended
    during this tick. ``paused``: none of its items is fed. ``pauses``: start and end of each earlier pause,
    in server milliseconds. ``held_on``: lanes on which its jobs are held after refusals, as logged.
    ``measured``: pages that its client has sent since.
    ``open_ended``: its rows decide the model, so unread items may go to lanes that it has not used.
    """

    ref: RunRef
    plan: Plan
    cursor: int = 0
    task_lanes: set[str] = field(default_factory=set)
    rows: int = 0
    open: bool = False
    started_ms: int = 0
    may_feed_next: bool = True
    scanned: int = 0
    ended: bool = False
    paused: bool = False
    pauses: tuple[tuple[int, int], ...] = ()
    held_on: set[str] = field(default_factory=set)
    measured: Measured = field(init=False)
    open_ended: bool = field(init=False)

    def __post_init__(self) -> None:
        self.measured = Measured(self.ref)
        self.open_ended = any("{" in model for model in self.plan.spec.models)
        self.rows = self.rows or self.plan.spec.rows
        self.open = self.open or self.plan.spec.open

    @property
    def ends_ms(self) -> int | None:
        """Server time at which its ``max_duration`` ends; ``None`` without one."""
        most = self.plan.spec.bounds.max_duration
        return None if most is None else self.started_ms + round(most * 1000)

    def unpaused_ms(self, since_ms: int, server_ms: int) -> int:
        """Milliseconds between two server times, without its pauses. It must not be paused now."""
        paused = (min(until, server_ms) - max(since, since_ms) for since, until in self.pauses)
        return server_ms - since_ms - sum(each for each in paused if each > 0)

    def has_waited(self, since_ms: int, until_ms: int) -> bool:
        """Whether that time, without its pauses, is as long as its ``max_outage``."""
        return self.unpaused_ms(since_ms, until_ms) >= self.plan.spec.bounds.max_outage * 1000

    @property
    def priority(self) -> int:
        """Its priority among its team's runs; a greater number goes first."""
        return INTERACTIVE_PRIORITY if self.interactive else self.plan.spec.priority

    @property
    def interactive(self) -> bool:
        """Whether a user waits for its answers."""
        return self.plan.spec.interactive

    @property
    def items(self) -> int:
        """Items of the rows so far."""
        return self.rows * self.plan.spec.cells_per_row

    @property
    def passes(self) -> int:
        """How many times the cursor passes over the items: twice if some rows go first."""
        return 2 if self.plan.spec.order.serial_field is not None else 1

    @property
    def serial(self) -> bool:
        """Whether the items at the cursor go one at a time."""
        return self.plan.spec.order.serial or (self.passes == 2 and self.cursor < self.items)

    @property
    def by_turns(self) -> bool:
        """Whether the items of a conversation go one at a time, next to those of others."""
        return self.plan.spec.order.turns

    @property
    def known_lanes(self) -> set[str]:
        """Lanes that may have its jobs, besides those that Redis names."""
        return {*self.task_lanes, *self.plan.eval_lanes, *self.plan.session_lanes}

    @property
    def rows_ahead(self) -> int:
        """Rows that are not scanned yet."""
        scanned = self.scanned if self.by_turns else self.cursor
        return self.rows - scanned // self.plan.spec.cells_per_row

    @property
    def caught_up(self) -> bool:
        """Whether all items so far are fed."""
        return self.cursor >= self.items * self.passes

    @property
    def fully_fed(self) -> bool:
        """Whether all items are fed, and no more can follow."""
        return self.caught_up and not self.open


class _Throttled(NamedTuple):
    """A run's queued jobs that are not offered until a server time (``None``: until woken), and the bound."""

    jobs: int
    until_ms: int | None
    bound: str


_NOT_THROTTLED = _Throttled(0, None, "")


class LaneQueue:
    """Queued jobs of a lane. ``waiting``: those that may start, by team and run; ``by_team``: their sums.

    Throttled runs are kept apart. The cost of a change does not depend on how many jobs are queued.
    """

    def __init__(self) -> None:
        self.waiting: dict[str, dict[RunRef, int]] = {}
        self.by_team: dict[str, int] = {}
        self.interactive: dict[RunRef, None] = {}
        self.depth = 0
        self._throttled: dict[RunRef, _Throttled] = {}
        # A heap; an entry is out of date if its run has another end.
        self._ends: list[tuple[int, str, RunRef]] = []
        self._arrived: set[str] = set()
        self._interactive_runs: set[RunRef] = set()

    @property
    def lone_run(self) -> RunRef | None:
        """The only run with jobs that may start; ``None`` if there is none, or several."""
        if len(self.waiting) != 1:
            return None
        (runs,) = self.waiting.values()
        return next(iter(runs)) if len(runs) == 1 else None

    def count(self, ref: RunRef) -> int:
        """Jobs of a run, throttled or not."""
        return self.waiting.get(ref.team, {}).get(ref, 0) + self._throttled.get(ref, _NOT_THROTTLED).jobs

    def add(self, ref: RunRef, count: int, *, interactive: bool = False) -> None:
        """Count more queued jobs of a run. This ends its throttling, as its reason may have changed."""
        self._set(ref, self.count(ref) + count, interactive=interactive)

    def set_queued(self, ref: RunRef, left: int, *, interactive: bool = False) -> None:
        """Set how many jobs of a run are left, as a grant reported."""
        self._set(ref, max(0, left), interactive=interactive)

    def throttle(self, ref: RunRef, until_ms: int | None, bound: str = "") -> None:
        """Offer no jobs of a run until this server time, or until `unthrottle`; ``bound``: the reason."""
        left = self.count(ref)
        if left:
            self._remove(ref)
            self._throttled[ref] = _Throttled(left, until_ms, bound)
            if until_ms is not None:
                heapq.heappush(self._ends, (until_ms, str(ref), ref))

    def bound_of(self, ref: RunRef) -> str:
        """The bound that throttles a run; empty if none does."""
        return self._throttled.get(ref, _NOT_THROTTLED).bound

    def bounds(self) -> Iterator[tuple[RunRef, str]]:
        """Runs with queued jobs, each with the bound that throttles it or an empty text."""
        yield from ((ref, "") for runs in self.waiting.values() for ref in runs)
        yield from ((ref, each.bound) for ref, each in self._throttled.items())

    def throttled_by(self, bound: str) -> list[RunRef]:
        """Runs that this bound throttles."""
        return [ref for ref, each in self._throttled.items() if each.bound == bound]

    def throttle_team(self, team: str, until_ms: int | None, bound: str = "") -> None:
        """Throttle all runs of a team that are queued now."""
        for ref in list(self.waiting.get(team, ())):
            self.throttle(ref, until_ms, bound)

    def unthrottle(self) -> None:
        """End the throttling of all runs."""
        for ref in list(self._throttled):
            self._unthrottle(ref)

    def unthrottle_due(self, now_ms: int) -> int | None:
        """Unthrottle runs whose time is over. Returns when the next one's is."""
        while self._ends:
            until_ms, _, ref = self._ends[0]
            if self._throttled.get(ref, _NOT_THROTTLED).until_ms == until_ms:
                if until_ms > now_ms:
                    return until_ms
                self._unthrottle(ref)
            heapq.heappop(self._ends)
        return None

    @property
    def has_arrivals(self) -> bool:
        """Whether a team's first job was queued since the last call of `arrivals`."""
        return bool(self._arrived)

    def arrivals(self) -> set[str]:
        """Teams whose first job was queued since the last call."""
        arrived, self._arrived = self._arrived, set()
        return arrived

    def _set(self, ref: RunRef, left: int, *, interactive: bool) -> None:
        self.depth += left - self.count(ref)
        self._throttled.pop(ref, None)
        if interactive:
            self._interactive_runs.add(ref)
        if left:
            self._insert(ref, left)
        else:
            self._remove(ref)
            self._interactive_runs.discard(ref)

    def _insert(self, ref: RunRef, left: int) -> None:
        runs = self.waiting.get(ref.team)
        if runs is None:
            runs = self.waiting[ref.team] = {}
            self.by_team[ref.team] = 0
            self._arrived.add(ref.team)
        self.by_team[ref.team] += left - runs.get(ref, 0)
        runs[ref] = left
        if ref in self._interactive_runs:
            self.interactive[ref] = None

    def _remove(self, ref: RunRef) -> None:
        runs = self.waiting.get(ref.team)
        if runs is not None and ref in runs:
            self.by_team[ref.team] -= runs.pop(ref)
            if not runs:
                del self.waiting[ref.team], self.by_team[ref.team]
        self.interactive.pop(ref, None)

    def _unthrottle(self, ref: RunRef) -> None:
        left = self._throttled.pop(ref).jobs
        self._insert(ref, left)


class Backlog:
    """Active runs, and queued jobs by lane, team and run.

    A count is an upper bound until a grant reports how many jobs are left. ``sourced``: runs whose rows the
    scheduler reads, with their datasets.
    """

    def __init__(self) -> None:
        self._runs: dict[RunRef, ActiveRun] = {}
        self._feeding: dict[RunRef, ActiveRun] = {}  # without runs that are known to be fully fed
        self._deadlines: list[tuple[int, str, RunRef]] = []  # a heap; out of date if the run has ended
        self.sourced: dict[RunRef, tuple[ActiveRun, Source]] = {}
        self.damaged: set[RunRef] = set()
        """Runs that have a key of a wrong type. They are not active here until it is deleted."""
        self._lanes: dict[str, LaneQueue] = {}

    def runs(self) -> Iterator[ActiveRun]:
        """All active runs; the caller may drop some meanwhile."""
        yield from list(self._runs.values())

    def feeding(self) -> list[ActiveRun]:
        """Active runs that are not fully fed. A fully fed run stays so, and is not checked again."""
        for run in [run for run in self._feeding.values() if run.fully_fed]:
            del self._feeding[run.ref]
        return list(self._feeding.values())

    def get(self, ref: RunRef) -> ActiveRun | None:
        """An active run; ``None`` if it is unknown."""
        return self._runs.get(ref)

    def overdue(self, queued: Iterable[tuple[str, RunRef]], server_ms: int) -> list[tuple[str, RunRef]]:
        """Those of ``queued`` lanes and runs whose run is older than its ``max_outage``."""
        found = ((lane, ref, self._runs.get(ref)) for lane, ref in queued if lane)
        return [(lane, ref) for lane, ref, run in found if run and run.has_waited(run.started_ms, server_ms)]

    def add_run(self, run: ActiveRun) -> None:
        """Add a run that was admitted or loaded."""
        self._runs[run.ref] = self._feeding[run.ref] = run
        if (ends_ms := run.ends_ms) is not None:
            heapq.heappush(self._deadlines, (ends_ms, str(run.ref), run.ref))
        if run.plan.spec.source is not None:
            self.sourced[run.ref] = run, run.plan.spec.source

    def drop_run(self, ref: RunRef) -> None:
        """Drop a run that has ended."""
        self._runs.pop(ref, None)
        self._feeding.pop(ref, None)
        self.sourced.pop(ref, None)
        for lane in self._lanes.values():
            lane.set_queued(ref, 0)

    @property
    def has_deadlines(self) -> bool:
        """Whether a run, which may have ended, has a ``max_duration``."""
        return bool(self._deadlines)

    def next_deadline(self) -> tuple[int, ActiveRun] | None:
        """The run whose ``max_duration`` ends first, and when (server milliseconds); ``None`` without any."""
        while self._deadlines:
            ends_ms, _, ref = self._deadlines[0]
            run = self._runs.get(ref)
            if run is not None and run.ends_ms == ends_ms:
                return ends_ms, run
            heapq.heappop(self._deadlines)
        return None

    def forget_lane(self, name: str) -> None:
        """Drop the queue of a lane that has no jobs."""
        if name in self._lanes and not self._lanes[name].depth:
            del self._lanes[name]

    def lanes(self) -> Iterator[tuple[str, LaneQueue]]:
        """All queues, by lane."""
        yield from self._lanes.items()

    def lane(self, name: str) -> LaneQueue:
        """The queue of a lane."""
        found = self._lanes.get(name)
        if found is None:
            found = self._lanes[name] = LaneQueue()
        return found

    def add(self, lane: str, ref: RunRef, count: int = 1) -> None:
        """Count jobs of an active run that were queued on a lane."""
        run = self._runs.get(ref)
        if run is not None:
            self.lane(lane).add(ref, count, interactive=run.interactive)

    def set_queued(self, lane: str, ref: RunRef, left: int) -> None:
        """Set how many jobs of a run are left on a lane, as a grant reported."""
        run = self._runs.get(ref)
        self.lane(lane).set_queued(ref, left if run else 0, interactive=run is not None and run.interactive)

    def bounds_of(self, ref: RunRef) -> dict[str, str]:
        """Lanes on which a run has queued jobs, each with the bound that throttles them or an empty text."""
        return {name: lane.bound_of(ref) for name, lane in self._lanes.items() if lane.count(ref)}

    def throttled_by(self, bound: str) -> list[tuple[str, RunRef]]:
        """Lanes and runs that this bound throttles there."""
        return [(name, ref) for name, lane in self._lanes.items() for ref in lane.throttled_by(bound)]

    def throttle(self, lane: str, ref: RunRef, until_ms: int | None, bound: str = "") -> None:
        """Throttle a run on a lane, until this server time or until the lane is woken."""
        self.lane(lane).throttle(ref, until_ms, bound)

    def unthrottle(self, lane: str) -> None:
        """End the throttling of all runs on a lane."""
        self.lane(lane).unthrottle()

    def unthrottle_all(self) -> None:
        """End the throttling of all runs on all lanes."""
        for lane in self._lanes.values():
            lane.unthrottle()

    def unthrottle_due(self, now_ms: int) -> int | None:
        """Unthrottle runs whose time (server time) is over. Returns when the next one's is."""
        waits = [lane.unthrottle_due(now_ms) for lane in self._lanes.values()]
        return min((next_ms for next_ms in waits if next_ms is not None), default=None)

    def queued(self, lane: str) -> dict[RunRef, int]:
        """Jobs that may start on a lane, by run; throttled runs are left out."""
        return {ref: left for runs in self.lane(lane).waiting.values() for ref, left in runs.items()}

    def count(self, lane: str, ref: RunRef) -> int:
        """Jobs of a run on a lane, throttled or not."""
        return self.lane(lane).count(ref)

    def waiting_lanes(self) -> list[str]:
        """Lanes with jobs that may start."""
        return [name for name, lane in self._lanes.items() if lane.waiting]

    def depth(self, lane: str) -> int:
        """Jobs queued on a lane, of all runs."""
        return self.lane(lane).depth
