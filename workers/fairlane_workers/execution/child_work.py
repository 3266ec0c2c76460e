"""Runs work of teams in child processes: decodes pages, renders calls, scores answers.

Only work that may take long comes here; the executor does the rest at once.
"""

import asyncio
import json
from typing import Any

from fairlane.config.settings import Settings
from fairlane.core.errors import CutOff, NoChild, WorkRaised
from fairlane.core.events import Event
from fairlane.core.lru import Lru
from fairlane.model.ending import Completion
from fairlane.model.evaluators import Criterion
from fairlane.model.run import RunRef, RunSpec
from fairlane.pipeline.completion import evaluation_cut_off, session_cut_off, task_cut_off
from fairlane.pipeline.evaluations import FinishedJob
from fairlane.pipeline.rendering import Call
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
from fairlane_workers.execution.answer_cache import AnswerCache
from fairlane_workers.execution.batcher import Batcher
from fairlane_workers.execution.inputs import JobInputs
from fairlane_workers.transport.pause import sleep

log = get_logger("executor")

RUNS_KEPT = 1024

TRIES, AGAIN_S = 10, 1.0
"""How often, and after how many seconds, a paid answer is given to a child again if none can be started."""


class ChildWork:
    """One worker's access to child processes. After a few cut-off pieces, it has their run paused."""

    def __init__(self, batcher: Batcher, keys: Keys, pool: Pool, settings: Settings) -> None:
        self._batcher, self._keys, self._pool = batcher, keys, pool
        self._hold_after = settings.sandbox.hold_after
        self._row_bytes = settings.scheduler.limits.row_bytes
        self._cut_off = Lru[RunRef, int](RUNS_KEPT)

    async def rows(self, ref: RunRef, blob: bytes) -> list[bytes]:
        """The JSON texts of a page's rows; a text in place of an object says why there is no row.

        Raises `BrokenPage`, `CutOff`, `WorkRaised`.
        """
        found: list[bytes] = await self._done(ref, ReadPage(blob, self._row_bytes))
        return found

    async def members(self, ref: RunRef, blob: bytes, rows: int) -> list[bytes]:
        """The JSON texts of a large block of sessions. Raises `BrokenSessions`, `CutOff`, `WorkRaised`."""
        found: list[bytes] = await self._done(ref, ReadMembers(blob, rows))
        return found

    async def call(self, inputs: JobInputs) -> Call:
        """The rendered call of a job. Raises `TemplateError`, `CutOff`, `WorkRaised`."""
        item = inputs.item
        piece = RenderCall(item.number, item.row, inputs.step, inputs.output, inputs.memory)
        if inputs.session is not None:
            piece = RenderCall(item.number, {}, inputs.session.step, turns=inputs.session.turns)
        call: Call = await self._of_run(inputs, piece, 1)
        return call

    async def flaw(self, spec: RunSpec, answer: str, criterion: Criterion) -> str | None:
        """The flaw of an answer for one criterion; ``None`` if it is valid."""
        try:
            piece = FindFlaw(answer, criterion)
            found: str | None = await self._done(RunRef(spec.team, spec.run), piece, tries=TRIES)
        except (CutOff, WorkRaised) as error:
            return str(error)
        return found

    async def completed(self, inputs: JobInputs, finished: FinishedJob, cache: AnswerCache) -> Completion:
        """The completion of a job; ``cache`` knows evaluations that need no call. Raises `RedisError`."""
        item, step, membership = inputs.item, inputs.step, inputs.membership
        try:
            if inputs.session is not None:
                return await self._completion(inputs, CompleteSession(inputs.session.step, finished))
            if step:
                piece = CompleteEvaluation(item.number, item.row, step, finished, inputs.output, membership)
                return await self._completion(inputs, piece)
            return await self._task(inputs, finished, cache)
        except (CutOff, WorkRaised) as error:
            if inputs.session is not None:
                return session_cut_off(finished, str(error))
            if step:
                return evaluation_cut_off(item, step, finished, membership, str(error))
            model = None if inputs.problem is not None else inputs.call.model
            return task_cut_off(item, finished, membership, str(error), model)

    async def _task(self, inputs: JobInputs, finished: FinishedJob, cache: AnswerCache) -> Completion:
        item, spec = inputs.item, inputs.spec
        digests: dict[int, str] = {}
        if finished.answer is not None and spec.evals and spec.cache.reads:
            piece = EvaluationDigests(item.number, item.row, finished.answer.output, cache.servers)
            digests = await self._of_run(inputs, piece)
        return await self._completion(
            inputs,
            CompleteTask(
                item.number,
                item.row,
                finished,
                inputs.membership,
                await cache.known(spec.team, digests) if digests else {},
                inputs.call if inputs.memory is not None and finished.answer is not None else None,
                inputs.memory,
            ),
        )

    async def _completion(self, inputs: JobInputs, piece: Piece) -> Completion:
        completion: Completion = await self._of_run(inputs, piece)
        return completion

    async def _of_run(self, inputs: JobInputs, piece: Piece, tries: int = TRIES) -> Any:
        """The result of a piece that needs its run's templates."""
        spec = inputs.spec
        return await self._done(RunRef(spec.team, spec.run), piece, inputs, tries=tries)

    async def _done(
        self, ref: RunRef, piece: Piece, inputs: JobInputs | None = None, *, tries: int = 1
    ) -> Any:
        plan = None if inputs is None else inputs.item.rendering.plan
        while True:
            tries -= 1
            try:
                return await asyncio.wrap_future(self._pool.submit(ref.team, piece, plan))
            except NoChild:
                if not tries:
                    raise
            except CutOff as error:
                await self._note(ref, error)
                raise
            await sleep(AGAIN_S)

    async def _note(self, ref: RunRef, error: CutOff) -> None:
        """Log a piece that was cut off; after a few, ask the scheduler to pause their run."""
        log.warning(Event.WORK_CUT_OFF, run=ref.run, team=ref.team, what=error.what, reason=str(error))
        pieces = (self._cut_off.get(ref) or 0) + 1
        self._cut_off.put(ref, pieces)
        if pieces < self._hold_after:
            return
        self._cut_off.drop(ref)
        by = f"a worker, as {self._hold_after} of its {error.what} went past {error.setting}"
        entry = json.dumps({"op": "pause", "run": ref.run, "by": by})
        self._batcher.offer(("RPUSH", self._keys.inbox(ref.team), entry))
        self._batcher.offer(("PUBLISH", self._keys.wake, f"inbox:{ref.team}"))
