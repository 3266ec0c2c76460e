"""Turns runs into candidates, a stretch of items at a time, and no further ahead than their lanes need."""

from __future__ import annotations

from itertools import zip_longest

from redis.exceptions import RedisError

from fairlane.clock import Clock
from fairlane.datasets.pages import MAX_ROW_BYTES
from fairlane.events import Event
from fairlane.logs import get_logger
from fairlane.store.keys import RunRef
from fairlane.store.runs import Runs
from fairlane_scheduler.backlog import ActiveRun, Backlog
from fairlane_scheduler.drafts import Stretch
from fairlane_scheduler.lane_registry import LaneRegistry
from fairlane_scheduler.placement import Placement
from fairlane_scheduler.rests import Rests
from fairlane_scheduler.server_time import Moment

STRETCH = 128  # items handed out at once: a few milliseconds of rendering
STRETCH_MS = 10  # a stretch of costly templates ends early
COSTLY_MS = 100  # one whose last item took longer lets its team rest
TICK_ITEMS, TICK_MS = (
    1024,
    40,
)  # then the runs that are left wait for the next tick: lanes are to be asked, too
SCAN = 4096  # items looked at for the next one that goes alone
DEEP = 5_000  # a run with this many queued jobs is read ahead of at leisure
LEISURE_MS = 50
AHEAD = 50_000  # how far to look for lanes of a run that nobody has seen yet
ASIDE_MS = 5_000  # a run that broke the feeder waits this long; the others go on

log = get_logger("feeder")


class Feeder:
    """Keeps every lane of every run supplied; where one lane of a run is slow, it reads past its items."""

    def __init__(
        self,
        runs: Runs,
        backlog: Backlog,
        lanes: LaneRegistry,
        clock: Clock,
        most_row_bytes: int = MAX_ROW_BYTES,
    ) -> None:
        self._runs, self._backlog, self._lanes, self._clock = runs, backlog, lanes, clock
        self._placement = Placement(runs, lanes, most_row_bytes)
        self._rests = Rests(COSTLY_MS, clock.worked_ms)
        self._last_ms: dict[RunRef, int] = {}
        self._aside_ms: dict[RunRef, int] = {}
        self._first: RunRef | None = None  # whose turn it is when a tick cannot serve all

    def tick(self, moment: Moment) -> None:
        """Feed each run that wants it one stretch, within the bounds of a tick."""
        fed, started_ms = 0, self._clock.monotonic_ms()
        for run in self._in_turn():
            if run.fed or self._wait_of(run, moment.monotonic_ms) != 0:
                continue
            if fed >= TICK_ITEMS or self._clock.monotonic_ms() - started_ms >= TICK_MS:
                self._first = run.ref
                return
            self._last_ms[run.ref] = moment.monotonic_ms
            fed += self._try(run, moment)
        self._first = None

    def wait_ms(self, monotonic_ms: int) -> int | None:
        """Milliseconds until a run wants to be fed, ``None`` while none does: ask after lanes have taken."""
        waits = (self._wait_of(run, monotonic_ms) for run in self._backlog.runs() if not run.fed)
        return min((wait for wait in waits if wait is not None), default=None)

    def forget(self, ref: RunRef) -> None:
        """A run has ended."""
        self._placement.forget(ref)
        self._last_ms.pop(ref, None)
        self._aside_ms.pop(ref, None)

    def _in_turn(self) -> list[ActiveRun]:
        """From where the last tick ended, a run of each team in turn: none waits for all runs of another."""
        runs = list(self._backlog.runs())
        start = next((i for i, run in enumerate(runs) if run.ref == self._first), 0)
        by_team: dict[str, list[ActiveRun]] = {}
        for run in runs[start:] + runs[:start]:
            by_team.setdefault(run.ref.team, []).append(run)
        return [run for turn in zip_longest(*by_team.values()) for run in turn if run is not None]

    def _wait_of(self, run: ActiveRun, monotonic_ms: int) -> int | None:
        if (aside_ms := self._aside_ms.get(run.ref, 0) - monotonic_ms) > 0:
            return aside_ms
        if run.supplied or run.paused:
            return None
        if rest_ms := self._rests.left_ms(run.ref.team, monotonic_ms):
            return rest_ms
        if run.serial:
            return 0 if run.its_turn else None
        queued = [self._backlog.count(lane, run.ref) for lane in run.task_lanes]
        supplied = bool(queued) and min(queued) >= STRETCH
        if supplied and not (run.open_ended and sum(queued) < AHEAD):
            return None
        if not supplied and sum(queued) < DEEP:
            return 0
        return max(0, self._last_ms.get(run.ref, -LEISURE_MS) + LEISURE_MS - monotonic_ms)

    def _try(self, run: ActiveRun, moment: Moment) -> int:
        try:
            return self._feed(run, moment)
        except (RedisError, OSError):
            raise
        except Exception as error:
            self._aside_ms[run.ref] = moment.monotonic_ms + ASIDE_MS
            log.exception("feeding_failed", run=run.ref.run, team=run.ref.team, error=repr(error))
            return STRETCH

    def _feed(self, run: ActiveRun, moment: Moment) -> int:
        """Hand out the next items of a run; how many."""
        if run.serial and not self._is_turn(run):
            return 0
        start = run.cursor
        stretch, upto = self._render(run)
        for lane in stretch.entries:
            self._lanes.ensure(lane)
        fed = self._runs.feed(
            run.ref,
            moment.epoch,
            start,
            upto,
            stretch.entries,
            stretch.over,
            moment.argument,
            handed=stretch.handed,
            memory=stretch.memory,
            joined=stretch.joined,
        )
        if fed == 0:
            run.cursor = self._runs.cursor(run.ref)
            return upto - start
        run.cursor = upto
        self._queue(run, stretch)
        if fed == 2:
            log.info(Event.RUN_FINISHED, run=run.ref.run, team=run.ref.team)
            self._backlog.drop_run(run.ref)
            self.forget(run.ref)
        return upto - start

    def _is_turn(self, run: ActiveRun) -> bool:
        """Whether all that a serial run has handed out is over; else it is looked at again when it is
        woken.
        """
        handed, done = self._runs.turn(run.ref)
        run.its_turn = handed == done
        return run.its_turn

    def _render(self, run: ActiveRun) -> tuple[Stretch, int]:
        """Place items from the cursor on; returns where it stopped. The first turn ends where the second
        begins.
        """
        started_ms = self._clock.monotonic_ms()
        end = run.items if run.cursor < run.items else run.items * run.passes
        upto = min(run.cursor + (SCAN if run.serial else STRETCH), end)
        self._rests.begin()
        try:
            return self._placement.place(
                run, upto, lambda: self._clock.monotonic_ms() - started_ms >= STRETCH_MS
            )
        finally:
            if rest_ms := self._rests.end(run.ref.team, self._clock.monotonic_ms()):
                log.warning(Event.TEAM_RESTS, team=run.ref.team, rest_ms=rest_ms)

    def _queue(self, run: ActiveRun, stretch: Stretch) -> None:
        for lane, entries in stretch.entries.items():
            if (
                any(entry.job % run.plan.spec.steps == 0 for entry in entries)
                or not run.plan.spec.calls_tasks
            ):
                run.task_lanes.add(lane)
            self._backlog.add(lane, run.ref, len(entries))
            depth = self._backlog.depth(lane)
            fields = {"run": run.ref.run, "lane": lane, "team": run.ref.team, "queue_depth": depth}
            for entry in entries:
                labels = run.plan.spec.labels(entry.job)
                log.info(Event.QUEUEING, job=entry.job, attempt=1, **labels, **fields)
