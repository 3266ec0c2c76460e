"""Reads the inputs of an attempt (run, row, the output that an evaluation judges) and renders its call."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from pydantic import ValidationError

from fairlane.core.errors import (
    BrokenPage,
    BrokenSessions,
    CutOff,
    FairlaneError,
    NewerVersion,
    RunGone,
    TemplateError,
    WorkRaised,
)
from fairlane.core.lru import SharedReads
from fairlane.datasets.rows import MAX_PAGE_BYTES, decode_page, inflates_within
from fairlane.model.job import MESSAGE_VERSION, Attempt, JobState
from fairlane.model.results import JudgeResult, TaskResult
from fairlane.model.run import Plan, RunRef, RunSpec, cell_of
from fairlane.model.sessions import (
    BLOCK,
    Session,
    SessionMembership,
    decode_members,
    decode_memberships,
    members_field,
    memberships_field,
    session_of_job,
)
from fairlane.model.steps import Step
from fairlane.model.tokens import Usage
from fairlane.pipeline.conversation import read_fields, recalled, turn_fields
from fairlane.pipeline.linear import LINEAR_CHARS, calls_linearly, evaluates_linearly
from fairlane.pipeline.rendering import Call, Rendering, RunItem
from fairlane.store.keys import Keys
from fairlane_workers.execution.batcher import Batcher

RUNS_KEPT, PAGES_KEPT = 64, 128
LARGE_PAGES_KEPT = 8  # of up to 64 MiB each
BLOCKS_KEPT = 32  # blocks of sessions' rows
RESULTS_AT_ONCE = 500
ITEMS_SEARCHED = 50  # finished items that are searched for an answer: few of the first to end have failed

_Block = list[list[int]] | list[bytes]
"""Rows of each session of a block: numbers, or their JSON where there are many."""


@dataclass(frozen=True)
class JobInputs:
    """The inputs of one job: its ``item``, or for a session's job its ``session``.

    ``step`` is 0 for a task; ``output`` is the one that an evaluation judges. ``problem`` says what is
    missing: such a job can only fail. ``memory``: values that earlier items stored; set only for serial runs
    that use them. ``membership`` is the place of the item's row in its session; set only if sessions are
    evaluated. ``rendered``: its call, if it was rendered in a child process.
    """

    item: RunItem
    step: int = 0
    output: str | None = None
    session: Session | None = None
    memory: Mapping[bytes, bytes] | None = None
    problem: str | None = None
    membership: SessionMembership | None = None
    rendered: Call | None = None

    @property
    def spec(self) -> RunSpec:
        """The run's spec."""
        return self.item.rendering.spec

    @property
    def evaluation(self) -> Step | None:
        """The evaluation that this job is; ``None`` for a task."""
        if self.session is not None:
            return self.spec.session_evals[self.session.step]
        return self.spec.evals[self.step - 1] if self.step else None

    @property
    def renders_linearly(self) -> bool:
        """Whether its call is rendered without Jinja, and its texts are short."""
        item = self.item
        if self.session is not None:
            return False
        if self.evaluation is not None:
            return evaluates_linearly(item.rendering, [self.evaluation], item.row, self.output or "")
        return calls_linearly(item, self.memory)

    @cached_property
    def call(self) -> Call:
        """The call to make, rendered on first use. Raises `TemplateError`, or ``ValueError``."""
        if self.rendered is not None:
            return self.rendered
        item = self.item
        if self.session is not None:
            return item.rendering.session(self.spec.session_evals[self.session.step], self.session.turns)
        if self.step:
            return item.rendering.evaluation(self.spec.evals[self.step - 1], item.row, self.output or "")
        names = None if self.memory is None else recalled(item, self.memory)
        return item.rendering.task(item.cell, item.row, names)


class Children(Protocol):
    """Child processes that decode pages and blocks of sessions, and render calls, which may take long."""

    async def rows(self, ref: RunRef, blob: bytes) -> list[bytes]:
        """The JSON texts of a page's rows. Raises `BrokenPage`, `CutOff`, `WorkRaised`."""
        ...

    async def call(self, inputs: JobInputs) -> Call:
        """The rendered call of a job. Raises `TemplateError`, `CutOff`, `WorkRaised`."""
        ...

    async def members(self, ref: RunRef, blob: bytes, rows: int) -> list[bytes]:
        """The JSON texts of its sessions. Raises `BrokenSessions`, `CutOff`, `WorkRaised`."""
        ...


class _MissingInput(FairlaneError):
    """A part of a run is absent or broken: the run's client may write to these keys, too."""


class InputReader:
    """Reads inputs and keeps those that neighbouring attempts need, too.

    Without ``children`` it decodes and renders everything at once, for tests and simulations.
    """

    def __init__(self, batcher: Batcher, keys: Keys, children: Children | None = None) -> None:
        self._batcher, self._keys, self._children = batcher, keys, children
        self._runs: SharedReads[RunRef, Rendering] = SharedReads(RUNS_KEPT)
        self._pages: SharedReads[tuple[RunRef, int], list[dict[str, Any]] | None] = SharedReads(PAGES_KEPT)
        self._large_pages: SharedReads[tuple[RunRef, int], list[bytes]] = SharedReads(LARGE_PAGES_KEPT)
        self._memberships: SharedReads[tuple[RunRef, int], list[SessionMembership]] = SharedReads(PAGES_KEPT)
        self._blocks: SharedReads[tuple[RunRef, str], _Block] = SharedReads(BLOCKS_KEPT)

    async def of(self, attempt: Attempt) -> JobInputs:
        """Read the inputs of an attempt. Raises `RunGone`, `NewerVersion`."""
        if attempt.version > MESSAGE_VERSION:
            problem = f"its message has version {attempt.version}, this worker reads {MESSAGE_VERSION}"
            raise NewerVersion(problem)
        ref = RunRef(attempt.team, attempt.run)
        rendering = await self._runs.get(ref, lambda: self._read_run(ref))
        spec = rendering.spec
        if spec.session_evals and (found := session_of_job(spec, attempt.job)) is not None:
            return await self._session(ref, rendering, *found)
        item, step = divmod(attempt.job, spec.steps)
        membership = None
        try:
            number = cell_of(spec, item).row
            membership = await self._membership(ref, spec, number) if spec.session_evals else None
            row = await self._row(ref, spec, number)
            job_item = RunItem.of(rendering, item, row)
            output = await self._output(ref, item * spec.steps) if step else None
            memory = await self._memory(ref, job_item) if spec.order.remembers and not step else None
        except _MissingInput as missing:
            return JobInputs(
                RunItem.of(rendering, item, {}), step, problem=str(missing), membership=membership
            )
        return JobInputs(job_item, step, output, memory=memory, membership=membership)

    async def rendered(self, inputs: JobInputs) -> JobInputs:
        """``inputs`` with the call rendered, or with the problem why it cannot be."""
        if inputs.problem is not None:
            return inputs
        if self._children is None or inputs.renders_linearly:
            with suppress(TemplateError, ValueError):  # the outcome of the call
                _ = inputs.call
            return inputs
        try:
            return replace(inputs, rendered=await self._children.call(inputs))
        except (TemplateError, CutOff, WorkRaised) as error:
            return replace(inputs, problem=str(error))

    async def answered(self, attempt: Attempt, inputs: JobInputs) -> tuple[JobInputs, Usage] | None:
        """A call of the attempt's run that was answered, to the same model in the same step, and its tokens.

        ``None`` if none is among the items that ended first. Raises `RunGone`.
        """
        ref, spec, cell = RunRef(attempt.team, attempt.run), inputs.spec, inputs.item.cell
        if inputs.session is not None:
            return None
        items = await self._batcher.send(("LRANGE", self._keys.finished(ref), "0", str(ITEMS_SEARCHED - 1)))
        jobs = {int(item) * spec.steps + inputs.step: cell_of(spec, int(item)) for item in items}
        jobs = {job: each for job, each in jobs.items() if each.model == cell.model}
        if not jobs:
            return None
        results = await self._batcher.send(("HMGET", self._keys.results(ref), *map(str, jobs)))
        kind = JudgeResult if inputs.step else TaskResult
        for job, text in zip(jobs, results, strict=True):
            result = kind.from_json(text) if text else None
            if result is not None and result.state is JobState.SUCCEEDED:
                found = await self.rendered(await self.of(replace(attempt, job=job)))
                return None if found.problem is not None else (found, result.usage)
        return None

    def forget(self, ref: RunRef) -> None:
        """Drop the inputs of a run that has finished."""
        self._runs.drop_where(lambda key: key == ref)
        for kept in (self._pages, self._large_pages, self._memberships, self._blocks):
            kept.drop_where(lambda key: key[0] == ref)

    async def _session(
        self, ref: RunRef, rendering: Rendering, session: int, cell: int, step: int
    ) -> JobInputs:
        """The inputs of a session's job: its item is the session's first."""
        spec = rendering.spec
        job_item = RunItem.of(rendering, cell, {})
        try:
            rows = await self._members(ref, spec, session)
            job_item = RunItem.of(rendering, rows[0] * spec.cells_per_row + cell, {})
            turns = await self._turns(ref, spec, rows, cell)
        except _MissingInput as missing:
            return JobInputs(job_item, session=Session(step, ()), problem=str(missing))
        return JobInputs(job_item, session=Session(step, turns))

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
            raise _MissingInput("the outputs of the session are gone from Redis")
        return turns

    async def _membership(self, ref: RunRef, spec: RunSpec, row: int) -> SessionMembership:
        number, offset = divmod(row, spec.page_rows)
        page = await self._memberships.get((ref, number), lambda: self._read_memberships(ref, spec, number))
        if offset >= len(page):
            raise _MissingInput(f"the session of row {row + 1} is missing")
        return page[offset]

    async def _read_memberships(self, ref: RunRef, spec: RunSpec, number: int) -> list[SessionMembership]:
        blob = await self._field(ref, memberships_field(number), f"the sessions of page {number}")
        try:
            return decode_memberships(blob, spec.sessions)
        except BrokenSessions as broken:
            raise _MissingInput(f"the sessions of page {number}: {broken}") from broken

    async def _members(self, ref: RunRef, spec: RunSpec, session: int) -> list[int]:
        field = members_field(session)
        block = await self._blocks.get((ref, field), lambda: self._read_members(ref, spec, field))
        if session % BLOCK >= len(block):
            raise _MissingInput(f"the rows of session {session + 1} are missing")
        members = block[session % BLOCK]
        found: list[int] = json.loads(members) if isinstance(members, bytes) else members
        return found

    async def _read_members(self, ref: RunRef, spec: RunSpec, field: str) -> _Block:
        blob = await self._field(ref, field, f"{field} of the run's sessions")
        try:
            if self._children is not None and not inflates_within(blob, LINEAR_CHARS):
                return await self._children.members(ref, blob, spec.rows)
            return decode_members(blob, spec.rows)
        except (BrokenSessions, CutOff, WorkRaised) as broken:
            raise _MissingInput(f"the rows of sessions: {broken}") from broken

    async def _memory(self, ref: RunRef, item: RunItem) -> Mapping[bytes, bytes]:
        """The fields of the run's memory that the item reads: only those of its conversation."""
        fields = read_fields(item)
        if fields is not None:
            found = await self._memory_fields(ref, fields)
            return found | await self._memory_fields(ref, turn_fields(item.rendering, fields, found))
        found = await self._batcher.send(("HGETALL", self._keys.memory(ref)))
        return found if isinstance(found, dict) else dict(zip(found[::2], found[1::2], strict=True))

    async def _memory_fields(self, ref: RunRef, fields: Sequence[str]) -> dict[bytes, bytes]:
        """The fields that are set."""
        if not fields:
            return {}
        values = await self._batcher.send(("HMGET", self._keys.memory(ref), *fields))
        pairs = zip(fields, values, strict=True)
        return {name.encode(): value for name, value in pairs if value is not None}

    async def _read_run(self, ref: RunRef) -> Rendering:
        text = await self._batcher.send(("GET", self._keys.plan(ref)))
        if text is None:
            raise RunGone(f"run {ref.run} is gone from Redis")
        return Rendering(_read_plan(text), checked=True)

    async def _row(self, ref: RunRef, spec: RunSpec, index: int) -> dict[str, Any]:
        number, offset = divmod(index, spec.page_rows)
        page: list[dict[str, Any]] | list[bytes] | None
        page = await self._pages.get((ref, number), lambda: self._read_page(ref, number))
        if page is None:
            page = await self._large_pages.get((ref, number), lambda: self._read_large_page(ref, number))
        if offset >= len(page):
            raise _MissingInput(f"row {index + 1} is missing: page {number} has {len(page)} rows")
        found = page[offset]
        row: dict[str, Any] | str = json.loads(found) if isinstance(found, bytes) else found
        if isinstance(row, str):
            raise _MissingInput(f"row {index + 1}: {row}")
        return row

    async def _read_page(self, ref: RunRef, number: int) -> list[dict[str, Any]] | None:
        """The rows of a page; ``None`` for a large one, of which fewer are kept."""
        blob, children = await self._stored_page(ref, number), self._children
        if children is not None and not inflates_within(blob, LINEAR_CHARS):
            # The caller then finds it there.
            await self._large_pages.get((ref, number), lambda: self._decode(children, ref, number, blob))
            return None
        try:
            return decode_page(blob)
        except BrokenPage as broken:
            raise _MissingInput(f"page {number} of the run's rows: {broken}") from broken

    async def _read_large_page(self, ref: RunRef, number: int) -> list[bytes]:
        if self._children is None:
            raise RuntimeError("without children no page is large")
        return await self._decode(self._children, ref, number, await self._stored_page(ref, number))

    @staticmethod
    async def _decode(children: Children, ref: RunRef, number: int, blob: bytes) -> list[bytes]:
        try:
            return await children.rows(ref, blob)
        except (BrokenPage, CutOff, WorkRaised) as broken:
            raise _MissingInput(f"page {number} of the run's rows: {broken}") from broken

    async def _stored_page(self, ref: RunRef, number: int) -> bytes:
        return await self._field(ref, str(number), f"page {number} of the run's rows")

    async def _field(self, ref: RunRef, field: str, what: str) -> bytes:
        """A field that a client has written for a run; its length is checked before it is read."""
        size = await self._batcher.send(("HSTRLEN", self._keys.rows(ref), field))
        if size > MAX_PAGE_BYTES:
            raise _MissingInput(f"{what} is larger than {MAX_PAGE_BYTES:,} bytes")
        blob = await self._batcher.send(("HGET", self._keys.rows(ref), field))
        if blob is None:
            raise _MissingInput(f"{what} is gone from Redis")
        return bytes(blob)

    async def _output(self, ref: RunRef, job: int) -> str:
        text = await self._batcher.send(("HGET", self._keys.results(ref), str(job)))
        output = TaskResult.from_json(text).output if text else None
        if output is None:
            raise _MissingInput(f"the output of job {job} is gone from Redis")
        return output


def _read_plan(text: str | bytes) -> Plan:
    """A run's plan. Raises `NewerVersion` if it cannot be read: the scheduler wrote it, so it is sound."""
    try:
        return Plan.read(text)
    except ValidationError as error:
        raise NewerVersion("its run was admitted by a later version of the scheduler") from error
