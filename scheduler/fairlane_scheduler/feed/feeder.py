"""Queues items of active runs, a batch at a time, and no further ahead than their lanes need."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import zip_longest
from typing import TypeVar

from redis.exceptions import RedisError

from fairlane.config.settings import Settings
from fairlane.core.clock import Clock
from fairlane.core.events import Event
from fairlane.model.run import RunRef
from fairlane.sandbox.pool import Pool
from fairlane.store.read.turn_reading import TurnReader
from fairlane.store.write.runs.runs import Runs, Turn
from fairlane.telemetry.logs import get_logger, logs_calls
from fairlane_scheduler.dispatch.fairness import TeamThrottle
from fairlane_scheduler.feed.feed_batch import FeedBatch
from fairlane_scheduler.feed.tokenizers import Tokenizers
from fairlane_scheduler.feed.turns import Conversations, TurnPlacement
from fairlane_scheduler.lanes.registry import LaneRegistry
from fairlane_scheduler.state.backlog import ActiveRun, Backlog
from fairlane_scheduler.state.server_time import Moment

# A batch ends after so many items or milliseconds, so that rendering takes a small part of a tick.
BATCH_ITEMS = 128
BATCH_MS = 10

# A tick feeds at most so much. Other runs wait for the next one, because lanes must be asked in between.
TICK_ITEMS = 1024
TICK_MS = 40

# A new lane costs round trips, and a queue in every worker: after so many new lanes its team waits so long.
OPENED_AT_ONCE = 8
OPENING_MS = 80

COSTLY_MS = 100  # a batch that renders for longer throttles its team
SCAN_ITEMS = 4096  # how many items a tick searches for a serial run's next one
ENOUGH_QUEUED = 5_000  # with so many queued jobs a run is read ahead only every READ_AHEAD_EVERY_MS
READ_AHEAD_EVERY_MS = 50
READ_AHEAD_JOBS = 50_000  # how far a run is read ahead to find lanes that it has not used yet
CONNECTION_MS = 1_000  # until a run is fed again whose next item waits for a connection
AWAITED_MS = 5  # until a run is fed again whose next item a child process works on
BROKEN_RUN_PAUSE_MS = 5_000  # until a run is fed again whose feeding raised an error

log = get_logger("feeder")

T = TypeVar("T")


def in_turn(each: Iterable[T], team_of: Callable[[T], str]) -> list[T]:
    """Take one of each team in turn, so that no team waits for all of another."""
    by_team: dict[str, list[T]] = {}
    for one in each:
        by_team.setdefault(team_of(one), []).append(one)
    return [one for turn in zip_longest(*by_team.values()) for one in turn if one is not None]


class Feeder:
    """Keeps every lane of every run supplied. If one lane is slow, it feeds further items of others."""

    def __init__(
        self,
        runs: Runs,
        backlog: Backlog,
        lanes: LaneRegistry,
        clock: Clock,
        settings: Settings,
        tokenizers: Tokenizers | None = None,
        pool: Pool | None = None,
    ) -> None:
        """``pool`` runs templates and evaluators that may take long. A run is paused after some pieces that
        were cut off (``sandbox.hold_after``).
        """
        self._runs = runs
        self._backlog = backlog
        self._lanes = lanes
        self._clock = clock
        row_bytes = settings.scheduler.limits.row_bytes
        self._placement = TurnPlacement(runs, lanes, row_bytes, tokenizers, pool)
        self._conversations = Conversations(TurnReader(runs.redis, runs.keys))
        self._hold_after = settings.sandbox.hold_after
        self._cut_off = Counter[RunRef]()
        self._unconnected: dict[RunRef, str] = {}
        self._throttle = TeamThrottle(COSTLY_MS, clock.cpu_ms)
        self._last_ms: dict[RunRef, int] = {}
        self._paused_until_ms: dict[RunRef, int] = {}
        self._first: RunRef | None = None  # the run at which the last tick ran out of time
        self._logs_jobs = logs_calls(Event.QUEUEING)

    def tick(self, moment: Moment) -> None:
        """Feed one batch of each run that needs it, within the bounds of a tick."""
        fed, started_ms = 0, self._clock.monotonic_ms()
        for run in self._in_turn():
            if self._wait_ms(run, moment.monotonic_ms) != 0:
                continue
            if fed >= TICK_ITEMS or self._clock.monotonic_ms() - started_ms >= TICK_MS:
                self._first = run.ref
                return
            self._last_ms[run.ref] = moment.monotonic_ms
            fed += self._feed_or_pause(run, moment)
        self._first = None

    def wait_ms(self, monotonic_ms: int) -> int | None:
        """Milliseconds until a run needs to be fed; ``None`` if none does before a lane grants permits."""
        waits = (self._wait_ms(run, monotonic_ms) for run in self._backlog.feeding())
        return min((wait for wait in waits if wait is not None), default=None)

    def forget(self, ref: RunRef) -> None:
        """Drop the state of a run that has ended."""
        self._placement.forget(ref)
        self._conversations.forget(ref)
        self._last_ms.pop(ref, None)
        self._paused_until_ms.pop(ref, None)
        self._cut_off.pop(ref, None)
        self._unconnected.pop(ref, None)

    def _in_turn(self) -> list[ActiveRun]:
        """Runs to feed, from where the last tick ended, one of each team in turn."""
        runs = self._backlog.feeding()
        start = next((i for i, run in enumerate(runs) if run.ref == self._first), 0)
        return in_turn(runs[start:] + runs[:start], lambda run: run.ref.team)

    def _wait_ms(self, run: ActiveRun, monotonic_ms: int) -> int | None:
        """Milliseconds until this run needs to be fed; ``None`` if it needs nothing now."""
        if (paused_ms := self._paused_until_ms.get(run.ref, 0) - monotonic_ms) > 0:
            return paused_ms
        if run.caught_up or run.paused:
            return None
        if throttled_ms := self._throttle.left_ms(run.ref.team, monotonic_ms):
            return throttled_ms
        if run.serial:
            return 0 if run.may_feed_next else None
        if run.by_turns and not self._conversations.may_feed(run):
            return None
        queued = [self._backlog.count(lane, run.ref) for lane in run.task_lanes]
        supplied = bool(queued) and min(queued) >= BATCH_ITEMS
        if supplied and not (run.open_ended and sum(queued) < READ_AHEAD_JOBS):
            return None
        if not supplied and sum(queued) < ENOUGH_QUEUED:
            return 0
        return max(0, self._last_ms.get(run.ref, -READ_AHEAD_EVERY_MS) + READ_AHEAD_EVERY_MS - monotonic_ms)

    def _feed_or_pause(self, run: ActiveRun, moment: Moment) -> int:
        """Feed one batch; an unexpected error pauses this run only. Returns how many items were looked at."""
        try:
            return self._feed(run, moment)
        except (RedisError, OSError):
            raise
        except Exception as error:
            self._paused_until_ms[run.ref] = moment.monotonic_ms + BROKEN_RUN_PAUSE_MS
            log.exception(Event.FEEDING_FAILED, run=run.ref.run, team=run.ref.team, error=repr(error))
            return BATCH_ITEMS

    def _feed(self, run: ActiveRun, moment: Moment) -> int:
        if run.serial and not self._last_item_finished(run):
            return 0
        batch, upto, turns = self._place(run, moment)
        start = run.cursor
        self._pause_if_cut_off(run, moment)
        connection = self._placement.unconnected.get(run.ref)
        self._note_unconnected(run.ref, connection)
        if upto == start:
            if run.by_turns and not self._conversations.may_feed(run):
                return 0  # every item waits for an earlier turn
            pause_ms = AWAITED_MS if connection is None else CONNECTION_MS
            self._paused_until_ms[run.ref] = moment.monotonic_ms + pause_ms
            return 0
        if sum(self._lanes.ensure(lane) for lane in batch.entries) >= OPENED_AT_ONCE:
            self._throttle.throttle(run.ref.team, self._clock.monotonic_ms(), OPENING_MS)
        fed = self._runs.feed(
            run.ref,
            moment.epoch,
            start,
            upto,
            batch.entries,
            batch.recorded,
            moment.argument,
            handed=batch.items,
            memory=batch.memory,
            joined=batch.sessions,
            turns=turns,
        )
        if fed == 0:
            run.cursor = self._runs.cursor(run.ref)
            self._conversations.forget(run.ref)
            return upto - start
        run.cursor = upto
        if run.by_turns:
            self._conversations.feed(run.ref, turns)
        self._note_queued(run, batch)
        if fed == 2:
            log.info(Event.RUN_FINISHED, run=run.ref.run, team=run.ref.team)
            self._backlog.drop_run(run.ref)
            self.forget(run.ref)
        return upto - start

    def _note_unconnected(self, ref: RunRef, connection: str | None) -> None:
        """Log once that a run waits for a connection, and again for another."""
        if connection is None:
            self._unconnected.pop(ref, None)
        elif self._unconnected.get(ref) != connection:
            self._unconnected[ref] = connection
            remedy = "start the schedulers anew with [connections] of the workers"
            fields = {"run": ref.run, "team": ref.team, "connection": connection, "remedy": remedy}
            log.warning(Event.CONNECTION_AWAITED, **fields)

    def _pause_if_cut_off(self, run: ActiveRun, moment: Moment) -> None:
        """Pause a run after ``sandbox.hold_after`` of its pages, prompts or evaluators exceeded a limit."""
        self._cut_off[run.ref] += self._placement.cut_off(run.ref)
        if self._cut_off[run.ref] < self._hold_after:
            return
        del self._cut_off[run.ref]
        what = f"{self._hold_after} of its pages, prompts or evaluators"
        by = f"the scheduler, as {what} went past the limits of sandbox"
        if self._runs.pause(run.ref, by, moment.epoch, moment.argument):
            extent = self._runs.extent(run.ref)
            run.paused, run.pauses = extent.paused, extent.pauses
            log.info(Event.RUN_PAUSED, run=run.ref.run, team=run.ref.team, by=by)

    def _last_item_finished(self, run: ActiveRun) -> bool:
        """Whether a serial run may feed its next item; the end of the last one wakes it."""
        handed, done = self._runs.turn(run.ref)
        run.may_feed_next = handed == done
        return run.may_feed_next

    def _rebuild_fed(self, run: ActiveRun, moment: Moment) -> None:
        """Rebuild the list of a run's fed items, if Redis has lost a part of it."""
        lanes = sorted(run.known_lanes | self._runs.lanes(run.ref))
        fed = self._runs.refind(run.ref, lanes, moment.epoch, moment.argument)
        if fed is not None:
            run.cursor = fed
            log.warning(Event.RUNS_RECOUNTED, runs=1)

    def _place(self, run: ActiveRun, moment: Moment) -> tuple[FeedBatch, int, Sequence[Turn]]:
        """Place items whose turn has come, or those from the cursor on. A batch spans no two passes.

        Also returns where the cursor is once the batch is fed, and the turns in it.
        """
        started_ms, opening = self._clock.monotonic_ms(), self._lanes.opening
        end = run.items if run.cursor < run.items else run.items * run.passes
        upto = min(run.cursor + (SCAN_ITEMS if run.serial else BATCH_ITEMS), end)

        def enough() -> bool:
            passed_ms = self._clock.monotonic_ms() - started_ms
            return passed_ms >= BATCH_MS or self._lanes.opening - opening >= OPENED_AT_ONCE

        self._throttle.begin()
        try:
            if not run.by_turns:
                return *self._placement.place(run, upto, enough), ()
            due = self._conversations.due(
                run,
                partial(self._placement.conversation_of, run),
                enough,
                partial(self._rebuild_fed, run, moment),
            )
            batch, turns = self._placement.place_turns(run, due, enough)
            return batch, run.cursor + len(turns), turns
        finally:
            if throttled_ms := self._throttle.end(run.ref.team, self._clock.monotonic_ms()):
                log.warning(Event.TEAM_THROTTLED, team=run.ref.team, throttled_ms=throttled_ms)

    def _note_queued(self, run: ActiveRun, batch: FeedBatch) -> None:
        for lane, entries in batch.entries.items():
            spec = run.plan.spec
            if not spec.calls_tasks or any(entry.job % spec.steps == 0 for entry in entries):
                run.task_lanes.add(lane)
            self._backlog.add(lane, run.ref, len(entries))
            if not self._logs_jobs:
                continue
            depth = self._backlog.depth(lane)
            fields = {"run": run.ref.run, "lane": lane, "team": run.ref.team, "queue_depth": depth}
            for entry in entries:
                labels = spec.labels(entry.job)
                log.info(Event.QUEUEING, job=entry.job, attempt=1, **labels, **fields)
