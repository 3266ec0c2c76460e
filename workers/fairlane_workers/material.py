"""What an attempt works on: its run, its row, and for an evaluation the output that it looks at."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fairlane.datasets.pages import BrokenPage, decode_page
from fairlane.errors import FairlaneError
from fairlane.evaluators.steps import Step
from fairlane.job import Attempt
from fairlane.memory import recalled
from fairlane.rendering import Call, Rendering
from fairlane.results import TaskResult
from fairlane.run import RunSpec, cell_of
from fairlane.sessions import (
    BLOCK,
    BrokenSessions,
    Seat,
    Session,
    decode_members,
    decode_seats,
    members_field,
    seats_field,
    session_of_job,
)
from fairlane.store.keys import Keys, RunRef
from fairlane.verdict import Place
from fairlane_workers.batcher import Batcher
from fairlane_workers.versions import read_plan

RUNS_KEPT, PAGES_KEPT = 64, 128
BLOCKS_KEPT = 32  # of sessions' rows
RESULTS_AT_ONCE = 500

K = TypeVar("K")
V = TypeVar("V")


class MaterialGone(FairlaneError):
    """The run of an attempt is no longer in Redis."""


class _Missing(FairlaneError):
    """A part of a run is not there, or is not what it should be: its client can write there, too."""


@dataclass(frozen=True, slots=True)
class Work:
    """One job's material: its item's ``place``, or for a session's job its ``session``.

    ``step`` is 0 for a task; ``judged`` is the output that an evaluation looks at. ``problem`` says what is
    missing: such a job can only fail. ``memory`` is what earlier items left, where this run's items do.
    ``seat`` is where the item's row belongs, where sessions are evaluated.
    """

    place: Place
    step: int = 0
    judged: str | None = None
    session: Session | None = None
    memory: Mapping[bytes, bytes] | None = None
    problem: str | None = None
    seat: Seat | None = None

    @property
    def rendering(self) -> Rendering:
        return self.place.rendering

    @property
    def spec(self) -> RunSpec:
        return self.place.rendering.spec

    @property
    def evaluation(self) -> Step | None:
        """The evaluation that this is; ``None`` for a task."""
        if self.session is not None:
            return self.spec.session_evals[self.session.step]
        return self.spec.evals[self.step - 1] if self.step else None

    def call(self) -> Call:
        """What to ask. Raises `TemplateError`."""
        place = self.place
        if self.session is not None:
            return place.rendering.session(self.spec.session_evals[self.session.step], self.session.turns)
        if self.step:
            return place.rendering.evaluation(self.spec.evals[self.step - 1], place.row, self.judged or "")
        names = None
        if self.memory is not None:
            names = recalled(place.rendering, place.cell, place.row, self.memory)
        return place.rendering.task(place.cell, place.row, names)


class Materials:
    """Reads material, keeping what neighbouring attempts need too; concurrent readers share one read."""

    def __init__(self, batcher: Batcher, keys: Keys) -> None:
        self._batcher, self._keys = batcher, keys
        self._runs: _Kept[RunRef, Rendering] = _Kept(RUNS_KEPT)
        self._pages: _Kept[tuple[RunRef, int], list[dict[str, Any]]] = _Kept(PAGES_KEPT)
        self._seats: _Kept[tuple[RunRef, int], list[Seat]] = _Kept(PAGES_KEPT)
        self._blocks: _Kept[tuple[RunRef, str], list[list[int]]] = _Kept(BLOCKS_KEPT)

    async def of(self, attempt: Attempt) -> Work:
        """The material of an attempt. Raises `MaterialGone`."""
        ref = RunRef(attempt.team, attempt.run)
        rendering = await self._runs.get(ref, lambda: self._read_run(ref))
        spec = rendering.spec
        if (found := session_of_job(spec, attempt.job)) is not None:
            return await self._session(ref, rendering, *found)
        item, step = divmod(attempt.job, spec.steps)
        seat = None
        try:
            number = cell_of(spec, item).row
            seat = await self._seat(ref, spec, number) if spec.session_evals else None
            row = await self._row(ref, spec, number)
            place = Place.of(rendering, item, row)
            judged = await self._output(ref, item * spec.steps) if step else None
            memory = await self._memory(ref) if spec.order.remembers and not step else None
        except _Missing as missing:
            return Work(Place.of(rendering, item, {}), step, problem=str(missing), seat=seat)
        return Work(place, step, judged, memory=memory, seat=seat)

    def forget(self, ref: RunRef) -> None:
        """A run has ended: its material is not needed again."""
        self._runs.drop(lambda key: key == ref)
        self._pages.drop(lambda key: key[0] == ref)
        self._seats.drop(lambda key: key[0] == ref)
        self._blocks.drop(lambda key: key[0] == ref)

    async def _session(self, ref: RunRef, rendering: Rendering, session: int, cell: int, step: int) -> Work:
        """A session's job: its place is that of the session's first item."""
        spec = rendering.spec
        place = Place.of(rendering, cell, {})
        try:
            rows = await self._members(ref, spec, session)
            place = Place.of(rendering, rows[0] * spec.cells_per_row + cell, {})
            turns = await self._turns(ref, spec, rows, cell)
        except _Missing as missing:
            return Work(place, session=Session(step, ()), problem=str(missing))
        return Work(place, session=Session(step, turns))

    async def _turns(self, ref: RunRef, spec: RunSpec, rows: list[int], cell: int) -> list[dict[str, Any]]:
        jobs = [(row * spec.cells_per_row + cell) * spec.steps for row in rows]
        turns: list[dict[str, Any]] = []
        for first in range(0, len(rows), RESULTS_AT_ONCE):
            some = slice(first, first + RESULTS_AT_ONCE)
            stored = await self._batcher.send(("HMGET", self._keys.results(ref), *map(str, jobs[some])))
            for row, text in zip(rows[some], stored, strict=True):
                output = TaskResult.from_json(text).output if text else None
                turns.append({"row": await self._row(ref, spec, row), "output": output})
        if all(turn["output"] is None for turn in turns):
            raise _Missing("the outputs of the session are gone from Redis")
        return turns

    async def _seat(self, ref: RunRef, spec: RunSpec, row: int) -> Seat:
        number, offset = divmod(row, spec.page_rows)
        page = await self._seats.get((ref, number), lambda: self._read_seats(ref, spec, number))
        if offset >= len(page):
            raise _Missing(f"the session of row {row + 1} is missing")
        return page[offset]

    async def _read_seats(self, ref: RunRef, spec: RunSpec, number: int) -> list[Seat]:
        blob = await self._batcher.send(("HGET", self._keys.rows(ref), seats_field(number)))
        try:
            return decode_seats(blob or b"", spec.sessions)
        except BrokenSessions as broken:
            raise _Missing(f"the sessions of page {number}: {broken}") from broken

    async def _members(self, ref: RunRef, spec: RunSpec, session: int) -> list[int]:
        field = members_field(session)
        block = await self._blocks.get((ref, field), lambda: self._read_members(ref, spec, field))
        if session % BLOCK >= len(block):
            raise _Missing(f"the rows of session {session + 1} are missing")
        return block[session % BLOCK]

    async def _read_members(self, ref: RunRef, spec: RunSpec, field: str) -> list[list[int]]:
        blob = await self._batcher.send(("HGET", self._keys.rows(ref), field))
        try:
            return decode_members(blob or b"", spec.rows)
        except BrokenSessions as broken:
            raise _Missing(f"the rows of sessions: {broken}") from broken

    async def _memory(self, ref: RunRef) -> Mapping[bytes, bytes]:
        found = await self._batcher.send(("HGETALL", self._keys.memory(ref)))
        return found if isinstance(found, dict) else dict(zip(found[::2], found[1::2], strict=True))

    async def _read_run(self, ref: RunRef) -> Rendering:
        text = await self._batcher.send(("GET", self._keys.plan(ref)))
        if text is None:
            raise MaterialGone(f"run {ref.run} is gone from Redis")
        return Rendering(read_plan(text))

    async def _row(self, ref: RunRef, spec: RunSpec, index: int) -> dict[str, Any]:
        number, offset = divmod(index, spec.page_rows)
        page = await self._pages.get((ref, number), lambda: self._read_page(ref, number))
        if offset >= len(page):
            raise _Missing(f"row {index + 1} is missing: page {number} has {len(page)} rows")
        return page[offset]

    async def _read_page(self, ref: RunRef, number: int) -> list[dict[str, Any]]:
        blob = await self._batcher.send(("HGET", self._keys.rows(ref), str(number)))
        if blob is None:
            raise _Missing(f"page {number} of the run's rows is gone from Redis")
        try:
            return decode_page(blob)
        except BrokenPage as broken:
            raise _Missing(f"page {number} of the run's rows: {broken}") from broken

    async def _output(self, ref: RunRef, job: int) -> str:
        text = await self._batcher.send(("HGET", self._keys.results(ref), str(job)))
        output = TaskResult.from_json(text).output if text else None
        if output is None:
            raise _Missing(f"the output of job {job} is gone from Redis")
        return output


class _Kept(Generic[K, V]):
    """The most recently used values; a value being read is awaited by everyone who wants it.

    A reading that fails is not kept. Whoever stops waiting does not end it for the others.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[K, asyncio.Future[V]] = OrderedDict()

    async def get(self, key: K, read: Callable[[], Coroutine[Any, Any, V]]) -> V:
        found = self._values.get(key)
        if found is None:
            found = self._values[key] = asyncio.ensure_future(read())
            found.add_done_callback(lambda reading: self._drop_failed(key, reading))
            while len(self._values) > self._most:
                self._values.popitem(last=False)
        self._values.move_to_end(key)
        return found.result() if found.done() else await asyncio.shield(found)

    def drop(self, gone: Callable[[K], bool]) -> None:
        for key in [key for key in self._values if gone(key)]:
            del self._values[key]

    def _drop_failed(self, key: K, reading: asyncio.Future[V]) -> None:
        failed = reading.cancelled() or reading.exception() is not None
        if failed and self._values.get(key) is reading:
            del self._values[key]
