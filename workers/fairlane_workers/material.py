"""What an attempt works on: its run's plan, its row, its prompt, and for a judge the output to be judged."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fairlane.datasets.pages import BrokenPage, decode_page
from fairlane.errors import FairlaneError
from fairlane.evaluators.spec import Judge
from fairlane.job import Attempt
from fairlane.prompts import Prompt, Template
from fairlane.results import TaskResult
from fairlane.run import Cell, Plan, RunSpec, cell_of
from fairlane.store.keys import Keys, RunRef
from fairlane_workers.batcher import Batcher

RUNS_KEPT, PAGES_KEPT = 64, 128

K = TypeVar("K")
V = TypeVar("V")


class MaterialGone(FairlaneError):
    """The run of an attempt is no longer in Redis."""


class _Missing(FairlaneError):
    """A part of a run is not there, or is not what it should be: its client can write there, too."""


@dataclass(frozen=True, slots=True)
class RunMaterial:
    """A run with its templates compiled."""

    plan: Plan
    prompts: tuple[Prompt, ...]
    models: tuple[Template, ...]
    judges: tuple[Template, ...]

    @property
    def spec(self) -> RunSpec:
        return self.plan.spec

    @classmethod
    def of(cls, plan: Plan) -> RunMaterial:
        spec = plan.spec
        return cls(
            plan=plan,
            prompts=tuple(Prompt(messages, f"prompts[{i}]") for i, messages in enumerate(spec.prompts)),
            models=tuple(Template(f"models[{i}]", text) for i, text in enumerate(spec.models)),
            judges=tuple(Template(f"evaluators[{judge.name}]", judge.template) for judge in spec.judges),
        )


@dataclass(frozen=True, slots=True)
class Work:
    """One job's material. ``judge`` and ``judged`` are set for a judge's job alone.

    ``problem`` says what of it is missing: such a job can only fail.
    """

    run: RunMaterial
    item: int
    cell: Cell
    row: dict[str, Any]
    judge: Judge | None = None
    template: Template | None = None
    judged: str | None = None
    problem: str | None = None


class Materials:
    """Reads material, keeping what neighbouring attempts need too; concurrent readers share one read."""

    def __init__(self, batcher: Batcher, keys: Keys) -> None:
        self._batcher, self._keys = batcher, keys
        self._runs: _Kept[RunRef, RunMaterial] = _Kept(RUNS_KEPT)
        self._pages: _Kept[tuple[RunRef, int], list[dict[str, Any]]] = _Kept(PAGES_KEPT)

    async def of(self, attempt: Attempt) -> Work:
        """The material of an attempt. Raises `MaterialGone`."""
        ref = RunRef(attempt.team, attempt.run)
        run = await self._runs.get(ref, lambda: self._read_run(ref))
        item, step = divmod(attempt.job, run.spec.steps)
        cell = cell_of(run.spec, item)
        judge = run.spec.judges[step - 1] if step else None
        template = run.judges[step - 1] if step else None
        try:
            row = await self._row(ref, run.spec, cell.row)
            judged = await self._output(ref, item * run.spec.steps) if step else None
        except _Missing as missing:
            return Work(run, item, cell, {}, judge, template, problem=str(missing))
        return Work(run, item, cell, row, judge, template, judged)

    def forget(self, ref: RunRef) -> None:
        """A run has ended: its material is not needed again."""
        self._runs.drop(lambda key: key == ref)
        self._pages.drop(lambda key: key[0] == ref)

    async def _read_run(self, ref: RunRef) -> RunMaterial:
        text = await self._batcher.send(("GET", self._keys.plan(ref)))
        if text is None:
            raise MaterialGone(f"run {ref.run} is gone from Redis")
        return RunMaterial.of(Plan.model_validate_json(text))

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
