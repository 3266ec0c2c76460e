"""Decides for each item whether its task is queued on a lane, or recorded because it needs no call."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, TypeAlias

from redis.exceptions import RedisError

from fairlane.core.errors import (
    BrokenPage,
    CutOff,
    NoChild,
    TemplateError,
    UnknownModel,
    UnreadableRow,
    WorkRaised,
)
from fairlane.core.events import Event
from fairlane.core.lru import Lru
from fairlane.datasets.rows import MAX_PAGE_BYTES, MAX_ROW_BYTES, bounded_rows, inflates_within
from fairlane.evaluators.scorers import as_text
from fairlane.model.outcome import Success
from fairlane.model.run import RunRef, RunSpec
from fairlane.model.tokens import Entry
from fairlane.pipeline.conversation import missing_turn, read_fields, recalled, turn_asked, turn_fields
from fairlane.pipeline.evaluations import FinishedJob
from fairlane.pipeline.linear import calls_linearly, has_linear_model
from fairlane.pipeline.rendering import Call, Rendering, RunItem
from fairlane.sandbox.pieces import ReadPage, RenderCall
from fairlane.sandbox.pool import Pool
from fairlane.store.read.turn_reading import TurnReader
from fairlane.store.write.runs.runs import Runs
from fairlane.telemetry.logs import get_logger
from fairlane_scheduler.feed.child_work import ChildWork, WorkAwaited
from fairlane_scheduler.feed.feed_batch import FeedBatch, PlacedItem
from fairlane_scheduler.feed.known_results import KnownTasks
from fairlane_scheduler.feed.tokenizers import Tokenizers
from fairlane_scheduler.feed.uncalled_items import UncalledItems
from fairlane_scheduler.lanes.registry import ConnectionAwaited, LaneRegistry
from fairlane_scheduler.state.backlog import ActiveRun

RUNS_KEPT = 256
MOST_REASON_CHARS = 500
LOOKED_AHEAD = 512  # children also get so many items behind an awaited one
PAGES_KEPT = 32
LARGE_PAGES_KEPT = 8  # of up to 64 MiB each

AT_ONCE_BYTES = 1 << 18
"""Largest page, in bytes of JSON, that a tick decodes itself: that takes some milliseconds."""

log = get_logger("rows")

Row = dict[str, Any]
_Page = list[Row | str] | list[bytes]
_Key = tuple[RunRef, int]


Memory: TypeAlias = Callable[[RunItem], Mapping[bytes, bytes]]
"""Reads the fields of the run's memory that an item may use."""


class PageAwaited(Exception):
    """A child process decodes the page; a later tick asks again."""


class RowPages:
    """Keeps the most recently used pages of all runs; for an unreadable page or row it keeps the reason.

    ``pool`` decodes large pages, which are kept as one JSON text a row. Without a pool, the tick decodes
    all pages.
    """

    def __init__(self, runs: Runs, most_row_bytes: int = MAX_ROW_BYTES, pool: Pool | None = None) -> None:
        self._runs = runs
        self._most_row_bytes = most_row_bytes
        self._pool = pool
        self._pages = Lru[_Key, _Page | str](PAGES_KEPT)
        self._large_pages = Lru[_Key, _Page](LARGE_PAGES_KEPT)
        self._awaited: dict[_Key, Future[list[bytes]]] = {}
        self.cut_off = Counter[RunRef]()
        """By run, how many pages exceeded a limit while a child decoded them."""

    def row(self, ref: RunRef, spec: RunSpec, index: int) -> Row:
        """One row. Raises `UnreadableRow`, `PageAwaited` while a child decodes its page, and `NoChild`."""
        number, offset = divmod(index, spec.page_rows)
        key = (ref, number)
        page: _Page | str | None = self._large_pages.get(key)
        if page is None:
            page = self._pages.get(key)
        if page is None:
            page = self._read(key)
        if isinstance(page, str):
            raise UnreadableRow(page)
        if not offset < len(page):
            raise UnreadableRow(f"row {index + 1} is missing: page {number} has {len(page)} rows")
        row = page[offset]
        if isinstance(row, bytes):
            row = json.loads(row)
        if isinstance(row, str):
            raise UnreadableRow(f"row {index + 1}: {row}")
        return row

    def forget(self, ref: RunRef) -> None:
        """Drop the pages of a run that has ended."""
        self._pages.drop_where(lambda key: key[0] == ref)
        self._large_pages.drop_where(lambda key: key[0] == ref)
        for key in [key for key in self._awaited if key[0] == ref]:
            self._awaited.pop(key).cancel()
        self.cut_off.pop(ref, None)

    def _read(self, key: _Key) -> _Page | str:
        awaited = self._awaited.get(key)
        if awaited is not None:
            if not awaited.done():
                raise PageAwaited
            del self._awaited[key]
            return self._decoded(key, awaited)
        blob = self._stored_page(key)
        if isinstance(blob, str):
            self._pages.put(key, blob)
            return blob
        if self._pool is not None and not inflates_within(blob, AT_ONCE_BYTES):
            piece = ReadPage(blob, self._most_row_bytes)
            self._awaited[key] = self._pool.submit(key[0].team, piece)
            raise PageAwaited
        try:
            page: _Page | str = bounded_rows(blob, self._most_row_bytes)
        except BrokenPage as error:
            page = self._unreadable(key, error)
        self._pages.put(key, page)
        return page

    def _decoded(self, key: _Key, done: Future[list[bytes]]) -> _Page | str:
        """The page that a child has decoded, or the reason why there is none. Raises `NoChild`."""
        try:
            page = done.result()
        except (BrokenPage, CutOff, WorkRaised) as error:
            if isinstance(error, CutOff):
                self.cut_off[key[0]] += 1
            reason = self._unreadable(key, error)
            self._pages.put(key, reason)
            return reason
        self._large_pages.put(key, page)
        return page

    def _stored_page(self, key: _Key) -> bytes | str:
        """A page as it is stored, or the reason why there is none."""
        ref, number = key
        if self._runs.page_bytes(ref, [number])[0] > MAX_PAGE_BYTES:
            return f"page {number} of the run's rows is larger than {MAX_PAGE_BYTES:,} bytes"
        blob = self._runs.page(ref, number)
        return f"page {number} of the run's rows is gone from Redis" if blob is None else blob

    @staticmethod
    def _unreadable(key: _Key, error: Exception) -> str:
        (ref, number), words = key, str(error)[:200]
        log.warning(Event.PAGE_UNREADABLE, run=ref.run, team=ref.team, page=number, error=words)
        return f"page {number} of the run's rows cannot be read: {words}"


class Placement:
    """Renders each task once, to know its lane and its size.

    ``pool`` does work that is not linear in short texts; without one, the tick does it.
    """

    def __init__(
        self,
        runs: Runs,
        lanes: LaneRegistry,
        most_row_bytes: int,
        tokenizers: Tokenizers | None = None,
        pool: Pool | None = None,
    ) -> None:
        self._runs = runs
        self._lanes = lanes
        self._tokenizers = tokenizers
        self._pages = RowPages(runs, most_row_bytes, pool)
        self._work = None if pool is None else ChildWork(pool)
        self._asked_until: dict[RunRef, int] = {}  # children have all items before this position
        self._uncalled = UncalledItems(runs, self._work, lanes.servers)
        self._raised: set[RunRef] = set()  # runs whose unexpected error was logged
        self.unconnected: dict[RunRef, str] = {}
        """By run, the connection that its next item waits for."""
        self._renderings = Lru[RunRef, Rendering](RUNS_KEPT)

    def place(self, run: ActiveRun, upto: int, enough: Callable[[], bool]) -> tuple[FeedBatch, int]:
        """Place items from the cursor on until ``upto`` or ``enough``; also returns where it stopped.

        It stops at the first item that a child process still works on. Children also get the items behind it,
        so that a later call finds them done.
        """
        placed: list[PlacedItem] = []
        position, stop, stopped = run.cursor, 0, False
        self.unconnected.pop(run.ref, None)
        memory, read = self._memory_of(run), dict[bytes, bytes]()
        while position < upto and not (position > run.cursor and enough()):
            try:
                one = self._place_one(run, position, memory)
            except PageAwaited:
                break
            except ConnectionAwaited as awaited:
                self.unconnected[run.ref] = awaited.connection
                break
            except WorkAwaited:
                if run.serial:
                    break
                if not stopped:
                    stopped, stop = True, position
                    last = run.items if position < run.items else run.items * run.passes
                    upto = min(position + LOOKED_AHEAD, last)
                    position = max(position, self._asked_until.get(run.ref, 0) - 1)
                one = None
            position += 1
            if one is not None and not stopped:
                own = None if memory is None else memory(one.item)
                placed.append(as_turn(one, own))
                read |= own or {}
                if run.serial:
                    break
        if stopped:
            self._asked_until[run.ref] = max(position, self._asked_until.get(run.ref, 0))
        batch = FeedBatch()
        fed = len(self._queue_or_record(run, placed, read, batch, in_order=True))
        if fed < len(placed):
            return batch, placed[fed].position
        return batch, stop if stopped else position

    def _rendering(self, run: ActiveRun) -> Rendering:
        return self._renderings.get_or_make(run.ref, lambda: Rendering(run.plan, checked=True))

    def forget(self, ref: RunRef) -> None:
        """Drop the state of a run that has ended."""
        self._renderings.drop(ref)
        self._pages.forget(ref)
        if self._work is not None:
            self._work.forget(ref)
        self._asked_until.pop(ref, None)
        self._raised.discard(ref)
        self.unconnected.pop(ref, None)
        self._uncalled.forget(ref)

    def cut_off(self, ref: RunRef) -> int:
        """How many pages and other pieces of a run exceeded a limit since the last call."""
        pieces = 0 if self._work is None else self._work.cut_off.pop(ref, 0)
        return self._pages.cut_off.pop(ref, 0) + pieces

    def _memory_of(self, run: ActiveRun) -> Memory | None:
        """A function that reads an item's part of the run's memory once; ``None`` if items read none."""
        if not run.plan.spec.order.remembers:
            return None
        read, reader = dict[int, Mapping[bytes, bytes]](), TurnReader(self._runs.redis, self._runs.keys)

        def memory(item: RunItem) -> Mapping[bytes, bytes]:
            if item.number not in read:
                fields = read_fields(item)
                if fields is None:
                    read[item.number] = self._runs.memory(run.ref)
                else:
                    found = reader.memory(run.ref, fields)
                    turns = reader.memory(run.ref, turn_fields(item.rendering, fields, found))
                    read[item.number] = found | turns
            return read[item.number]

        return memory

    def _place_one(self, run: ActiveRun, position: int, memory: Memory | None) -> PlacedItem | None:
        """An item to feed; ``None`` if it belongs to another turn.

        Raises `PageAwaited`, `WorkAwaited` and `ConnectionAwaited`.
        """
        spec = run.plan.spec
        turn, number = divmod(position, max(1, run.items))
        model = None
        rendering = self._rendering(run)
        item = RunItem.of(rendering, number, {})
        try:
            row = self._pages.row(run.ref, spec, item.cell.row)
            if _turn_of(spec, row) != turn:
                return None
            item = RunItem(rendering, number, item.cell, row)
            if spec.output_field is not None:
                return PlacedItem(
                    item, position, output=_given(row.get(spec.output_field), spec.output_field)
                )
            if self._work is None or has_linear_model(item):
                model = rendering.model(item.cell, row)
                self._lane_of(run, model)
            stored = None if memory is None else memory(item)
            if stored is not None and (gap := missing_turn(item, stored)):
                return PlacedItem(item, position, problem=gap, model=model)
            call = self._call(run, item, stored)
            return PlacedItem(item, position, self._lane_of(run, call.model), call, memory=stored)
        except (TemplateError, UnknownModel, UnreadableRow, CutOff, WorkRaised) as error:
            return PlacedItem(item, position, problem=str(error), model=model)
        except (PageAwaited, WorkAwaited, ConnectionAwaited, NoChild, RedisError, OSError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001  a row may let its template or request raise anything
            problem = f"{type(error).__name__}: {error}"[:MOST_REASON_CHARS]
            self._log_once(run.ref, number, problem)
            return PlacedItem(item, position, problem=problem, model=model)

    def _lane_of(self, run: ActiveRun, model: str) -> str:
        """The lane of a task. A model that no row decides was known when the run was admitted."""
        spec = run.plan.spec
        return self._lanes.lane_of_item(model, spec.lane, spec.team, checked=not run.open_ended)

    def _log_once(self, ref: RunRef, item: int, problem: str) -> None:
        """Log a run's first item that raised an unexpected error."""
        if ref not in self._raised:
            self._raised.add(ref)
            log.warning(
                Event.ITEM_RAISED, run=ref.run, team=ref.team, item=item, error=problem, exc_info=True
            )

    def _call(self, run: ActiveRun, item: RunItem, memory: Mapping[bytes, bytes] | None) -> Call:
        """The call of an item's task, rendered here if that is linear in short texts."""
        if self._work is None or calls_linearly(item, memory):
            names = None if memory is None else recalled(item, memory)
            return item.rendering.task(item.cell, item.row, names)
        call: Call = self._work.result(run, RenderCall(item.number, item.row, memory=memory))
        return call

    def _queue_or_record(
        self,
        run: ActiveRun,
        placed: Sequence[PlacedItem],
        memory: Mapping[bytes, bytes],
        batch: FeedBatch,
        *,
        in_order: bool = False,
    ) -> list[PlacedItem]:
        """Queue tasks that need a call; record those whose result is given, cached or taken over, and items
        that can never run. Returns those items: without those that a child still scores and, ``in_order``,
        those behind one.
        """
        known, fed, stopped = KnownTasks(), list[PlacedItem](), False
        if run.plan.spec.continues is not None or run.plan.spec.cache.reads:
            known = self._uncalled.known(run, placed, memory)
        for each in placed:
            finished = known.finished.get(each.item.number)
            if each.output is not None:
                finished = FinishedJob(Success(each.output))
            completion = None
            try:
                if each.problem is not None:
                    completion = self._uncalled.invalid(run, each)
                elif finished is not None:
                    completion = self._uncalled.completed(run, each, finished)
            except WorkAwaited as awaited:
                stopped = in_order
                if in_order and not awaited.new:
                    break
                continue
            if stopped:
                continue
            fed.append(each)
            batch.items += 1
            batch.memory |= {**known.memory.get(each.item.number, {}), **each.asked}
            if completion is not None:
                batch.add(each.item, completion)
            elif each.call is not None:
                tokens = self._tokenizers.tokens(each.call) if self._tokenizers else each.call.tokens
                entry = Entry(each.item.job(0), tokens, each.item.cell.model)
                batch.entries.setdefault(each.lane, []).append(entry)
        batch.recorded.sort(key=lambda recorded: recorded.job)
        if self._work is not None:
            self._work.drop(run.ref, [each.item.number for each in fed])
        return fed


def as_turn(placed: PlacedItem, memory: Mapping[bytes, bytes] | None) -> PlacedItem:
    """The item, with its turn to add to the run's memory; a call of a function is no turn."""
    if memory is None or (placed.call is not None and not placed.call.messages):
        return placed
    return replace(placed, asked=turn_asked(placed.item, memory))


def _turn_of(spec: RunSpec, row: Mapping[str, object]) -> int:
    """The pass over the items that feeds this row: rows with a true serial field go in the first."""
    name = spec.order.serial_field
    return 0 if name is None or row.get(name) else 1


def _given(value: object, name: str) -> str:
    if value is None:
        raise UnreadableRow(f"the row has no output in its field {name!r}")
    return as_text(value)
