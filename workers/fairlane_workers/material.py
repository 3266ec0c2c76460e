"""What an attempt works on: its run's plan, its row, its prompt, and for a judge the output to be judged."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fairlane.datasets import decode_page

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
    """The run of an attempt, or a part of it, is no longer in Redis."""


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
    """One job's material. ``judge`` and ``judged`` are set for a judge's job alone."""

    run: RunMaterial
    item: int
    cell: Cell
    row: dict[str, Any]
    judge: Judge | None = None
    template: Template | None = None
    judged: str | None = None


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
        number, offset = divmod(cell.row, run.spec.page_rows)
        page = await self._pages.get((ref, number), lambda: self._read_page(ref, number))
        if step == 0:
            return Work(run, item, cell, page[offset])
        judged = await self._read_output(ref, item * run.spec.steps)
        judge, template = run.spec.judges[step - 1], run.judges[step - 1]
        return Work(run, item, cell, page[offset], judge, template, judged)

    def forget(self, ref: RunRef) -> None:
        """A run has ended: its material is not needed again."""
        self._runs.drop(lambda key: key == ref)
        self._pages.drop(lambda key: key[0] == ref)

    async def _read_run(self, ref: RunRef) -> RunMaterial:
        text = await self._batcher.send(("GET", self._keys.plan(ref)))
        if text is None:
            raise MaterialGone(f"run {ref.run} is gone from Redis")
        return RunMaterial.of(Plan.model_validate_json(text))

    async def _read_page(self, ref: RunRef, number: int) -> list[dict[str, Any]]:
        blob = await self._batcher.send(("HGET", self._keys.rows(ref), str(number)))
        if blob is None:
            raise MaterialGone(f"run {ref.run}: page {number} of its rows is gone from Redis")
        return decode_page(blob)

    async def _read_output(self, ref: RunRef, job: int) -> str:
        text = await self._batcher.send(("HGET", self._keys.results(ref), str(job)))
        output = TaskResult.from_json(text).output if text else None
        if output is None:
            raise MaterialGone(f"run {ref.run}: the output of job {job} is gone from Redis")
        return output


class _Kept(Generic[K, V]):
    """The most recently used values; a value being read is awaited by everyone who wants it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[K, asyncio.Future[V]] = OrderedDict()

    async def get(self, key: K, read: Callable[[], Coroutine[Any, Any, V]]) -> V:
        found = self._values.get(key)
        if found is None:
            found = self._values[key] = asyncio.ensure_future(read())
            while len(self._values) > self._most:
                self._values.popitem(last=False)
        self._values.move_to_end(key)
        try:
            return await asyncio.shield(found)
        except BaseException:
            if found.done() and (found.cancelled() or found.exception()):
                self._values.pop(key, None)
            raise

    def drop(self, gone: Callable[[K], bool]) -> None:
        for key in [key for key in self._values if gone(key)]:
            del self._values[key]
