"""Renders, scores and decodes what teams wrote: at once where it is short, in child processes otherwise."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from fairlane.core.errors import CutOff, TemplateError, WorkRaised
from fairlane.core.events import Event
from fairlane.datasets.rows import MAX_ROW_BYTES, inflates_within
from fairlane.evaluators.agents import flaw
from fairlane.model.evaluators import Criterion
from fairlane.model.run import RunRef, RunSpec
from fairlane.pipeline.completion import (
    Completion,
    complete_evaluation,
    complete_session_evaluation,
    complete_task,
)
from fairlane.pipeline.cut_off import evaluation_cut_off, session_cut_off, task_cut_off
from fairlane.pipeline.evaluations import FinishedJob, render_evaluations
from fairlane.pipeline.linear import (
    LINEAR_CHARS,
    calls_linearly,
    completes_linearly,
    ends_linearly,
    evaluates_linearly,
    reads_session_linearly,
)
from fairlane.sandbox.pieces import (
    CompleteEvaluation,
    CompleteSession,
    CompleteTask,
    EvaluationDigests,
    FindFlaw,
    Piece,
    ReadMembers,
    ReadPage,
    RenderCall,
)
from fairlane.sandbox.pool import Pool
from fairlane.store.keys import Keys
from fairlane.telemetry.logs import get_logger
from fairlane_workers.execution.batcher import Batcher
from fairlane_workers.execution.inputs import JobInputs

log = get_logger("team_work")

FindKnown = Callable[[Mapping[int, str]], Awaitable[dict[int, FinishedJob]]]
"""Finds evaluations that the team's cache answers, by step; it gets their keys."""


class TeamWork:
    """One worker's. Without a pool everything is done at once, as tests and simulations want it."""

    def __init__(
        self,
        batcher: Batcher,
        keys: Keys,
        pool: Pool | None = None,
        hold_after: int = 3,
        row_bytes: int = MAX_ROW_BYTES,
    ) -> None:
        """``hold_after``: a run is paused after so many pieces that were cut off; ``row_bytes``: of a row."""
        self._batcher, self._keys, self._pool = batcher, keys, pool
        self._hold_after, self._row_bytes = hold_after, row_bytes
        self._cut_off: Counter[RunRef] = Counter()

    def is_large(self, blob: bytes) -> bool:
        """Whether a page of rows is to be decoded by `rows`, rather than at once."""
        return self._pool is not None and not inflates_within(blob, LINEAR_CHARS)

    async def rows(self, ref: RunRef, blob: bytes) -> list[bytes]:
        """The JSON texts of a large page's rows; a text in place of an object says why there is no row.

        Raises `BrokenPage`, `CutOff`, `WorkRaised`.
        """
        found: list[bytes] = await self._done(ref, ReadPage(blob, self._row_bytes))
        return found

    async def members(self, ref: RunRef, blob: bytes, rows: int) -> list[bytes]:
        """The JSON texts of a large block of sessions. Raises `BrokenSessions`, `CutOff`, `WorkRaised`."""
        found: list[bytes] = await self._done(ref, ReadMembers(blob, rows))
        return found

    async def rendered(self, inputs: JobInputs) -> JobInputs:
        """``inputs`` with the call rendered, or with the problem why it cannot be."""
        if inputs.problem is not None:
            return inputs
        if self._pool is None or _renders_linearly(inputs):
            with suppress(TemplateError, ValueError):  # the outcome of the call
                _ = inputs.call
            return inputs
        item = inputs.item
        piece = RenderCall(item.number, item.row, inputs.step, inputs.output, inputs.memory)
        if inputs.session is not None:
            piece = RenderCall(item.number, {}, inputs.session.step, turns=inputs.session.turns)
        try:
            return replace(inputs, rendered=await self._of_run(inputs, piece))
        except (TemplateError, CutOff, WorkRaised) as error:
            return replace(inputs, problem=str(error))

    async def flaw(self, spec: RunSpec, answer: str, criterion: Criterion) -> str | None:
        """The flaw of an answer for one criterion; ``None`` if it is valid."""
        if self._pool is None or len(answer) <= LINEAR_CHARS:
            return flaw(answer, criterion)
        try:
            found: str | None = await self._done(RunRef(spec.team, spec.run), FindFlaw(answer, criterion))
        except (CutOff, WorkRaised) as error:
            return str(error)
        return found

    async def session_evaluation(self, inputs: JobInputs, step: int, finished: FinishedJob) -> Completion:
        """Complete evaluation ``step`` (from 0) of a session."""
        evaluation = inputs.spec.session_evals[step]
        if self._pool is None or reads_session_linearly(evaluation, _output(finished)):
            return complete_session_evaluation(evaluation, finished)
        try:
            return await self._completed(inputs, CompleteSession(step, finished))
        except (CutOff, WorkRaised) as error:
            return session_cut_off(finished, str(error))

    async def evaluation(self, inputs: JobInputs, finished: FinishedJob) -> Completion:
        """Complete an evaluation of an item's output."""
        item, step, output, membership = inputs.item, inputs.step, inputs.output, inputs.membership
        if self._pool is None or ends_linearly(item, step, _output(finished), output or ""):
            return complete_evaluation(item, step, finished, output, membership)
        piece = CompleteEvaluation(item.number, item.row, step, finished, output, membership)
        try:
            return await self._completed(inputs, piece)
        except (CutOff, WorkRaised) as error:
            return evaluation_cut_off(item, step, finished, membership, str(error))

    async def task(self, inputs: JobInputs, finished: FinishedJob, known: FindKnown) -> Completion:
        """Complete an item's task; ``known`` finds evaluations that need no call. Raises `RedisError`."""
        item, output = inputs.item, _output(finished)
        if self._pool is None or completes_linearly(item, output, inputs.memory):
            return await _task_at_once(inputs, finished, known)
        try:
            digests: dict[int, str] = {}
            if output is not None and inputs.spec.evals and inputs.spec.cache.reads:
                digests = await self._of_run(inputs, EvaluationDigests(item.number, item.row, output))
            piece = CompleteTask(
                item.number,
                item.row,
                finished,
                inputs.membership,
                await known(digests) if digests else {},
                inputs.call if inputs.memory is not None and output is not None else None,
                inputs.memory,
            )
            return await self._completed(inputs, piece)
        except (CutOff, WorkRaised) as error:
            model = None if inputs.problem is not None else inputs.call.model
            return task_cut_off(item, finished, inputs.membership, str(error), model)

    async def _completed(self, inputs: JobInputs, piece: Piece) -> Completion:
        completion: Completion = await self._of_run(inputs, piece)
        return completion

    async def _of_run(self, inputs: JobInputs, piece: Piece) -> Any:
        """The result of a piece that needs its run's templates."""
        spec = inputs.spec
        return await self._done(RunRef(spec.team, spec.run), piece, inputs)

    async def _done(self, ref: RunRef, piece: Piece, inputs: JobInputs | None = None) -> Any:
        if self._pool is None:
            raise RuntimeError("there is no pool")
        plan = None if inputs is None else inputs.item.rendering.plan
        try:
            return await asyncio.wrap_future(self._pool.submit(ref.team, piece, plan))
        except CutOff as error:
            await self._note(ref, error)
            raise

    async def _note(self, ref: RunRef, error: CutOff) -> None:
        """Log a piece that was cut off; after a few, ask the scheduler to pause their run."""
        log.warning(Event.WORK_CUT_OFF, run=ref.run, team=ref.team, what=error.what, reason=str(error))
        self._cut_off[ref] += 1
        if self._cut_off[ref] < self._hold_after:
            return
        del self._cut_off[ref]
        by = f"a worker, as {self._hold_after} of its {error.what} went past {error.setting}"
        entry = json.dumps({"op": "pause", "run": ref.run, "by": by})
        self._batcher.offer(("RPUSH", self._keys.inbox(ref.team), entry))
        self._batcher.offer(("PUBLISH", self._keys.wake, f"inbox:{ref.team}"))


async def _task_at_once(inputs: JobInputs, finished: FinishedJob, known: FindKnown) -> Completion:
    item, output = inputs.item, _output(finished)
    if output is None:
        return complete_task(item, finished, inputs.membership)
    rendered = render_evaluations(item, output) if inputs.spec.evals else None
    found: dict[int, FinishedJob] | None = None
    if rendered is not None:
        reads = inputs.spec.cache.reads
        found = await known(rendered.digests(item.cell.repetition)) if reads else {}
    return complete_task(
        item,
        finished,
        inputs.membership,
        rendered=rendered,
        known=found,
        call=inputs.call if inputs.memory is not None else None,
        memory=inputs.memory,
    )


def _renders_linearly(inputs: JobInputs) -> bool:
    item = inputs.item
    if inputs.session is not None:
        return False
    if inputs.evaluation is not None:
        return evaluates_linearly(item.rendering, [inputs.evaluation], item.row, inputs.output or "")
    return calls_linearly(item, inputs.memory)


def _output(finished: FinishedJob) -> str | None:
    return None if finished.answer is None else finished.answer.output
