"""The pieces of work: their data, the work in a child, and how the parent reads the JSON reply. A child that
a team's input controls could reply anything, so replies are JSON and never pickles.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Protocol

from pydantic import TypeAdapter

from fairlane.core.errors import BrokenPage, BrokenSessions
from fairlane.datasets.rows import bounded_rows
from fairlane.evaluators.agents import flaw
from fairlane.model.ending import Completion
from fairlane.model.evaluators import Criterion
from fairlane.model.sessions import SessionMembership, decode_members
from fairlane.pipeline.completion import (
    complete_evaluation,
    complete_session_evaluation,
    complete_task,
)
from fairlane.pipeline.conversation import recalled
from fairlane.pipeline.evaluations import FinishedJob, KnownResult, render_evaluations
from fairlane.pipeline.rendering import Call, Rendering, RunItem
from fairlane.templates.template import compile_template

Row = Mapping[str, Any]

_CALL, _COMPLETION = TypeAdapter(Call), TypeAdapter(Completion)


class Piece(Protocol):
    """One piece of work; it is pickled on its way to a child."""

    what: ClassVar[str]
    """Its name in errors."""

    def work(self, rendering: Rendering | None) -> bytes:
        """Do the work, in a child. ``rendering`` is that of its run, if it has one."""
        ...

    def read(self, reply: bytes) -> Any:
        """The result of `work`, in the parent."""
        ...


@dataclass(frozen=True, slots=True)
class RenderCall:
    """Renders the call of a job: of a task, of evaluation ``step`` (from 1), or of a session's (from 0)."""

    what: ClassVar[str] = "prompts"

    item: int
    row: Row
    step: int = 0
    output: str | None = None
    memory: Mapping[bytes, bytes] | None = None
    turns: Sequence[Mapping[str, Any]] | None = None

    def work(self, rendering: Rendering | None) -> bytes:
        """The call as JSON. Raises `TemplateError`."""
        run = _needed(rendering)
        if self.turns is not None:
            call = run.session(run.spec.session_evals[self.step], self.turns)
        elif self.step:
            call = run.evaluation(run.spec.evals[self.step - 1], self.row, self.output or "")
        else:
            item = RunItem.of(run, self.item, self.row)
            names = None if self.memory is None else recalled(item, self.memory)
            call = run.task(item.cell, item.row, names)
        return _as_json(asdict(call))

    def read(self, reply: bytes) -> Call:
        """The call."""
        return _CALL.validate_python(json.loads(reply))


class _Completion:
    """A piece of work whose result is a completion."""

    __slots__ = ()

    what: ClassVar[str] = "evaluators"

    def completion(self, run: Rendering) -> Completion:
        """The completion, in a child."""
        raise NotImplementedError

    def work(self, rendering: Rendering | None) -> bytes:
        """The completion as JSON."""
        return _as_json(asdict(self.completion(_needed(rendering))))

    def read(self, reply: bytes) -> Completion:
        """The completion."""
        return _COMPLETION.validate_python(json.loads(reply))


@dataclass(frozen=True, slots=True)
class CompleteTask(_Completion):
    """Scores an item's output, and decides its evaluations."""

    item: int
    row: Row
    finished: FinishedJob
    membership: SessionMembership | None = None
    known: Mapping[int, KnownResult] = field(default_factory=dict)
    call: Call | None = None
    memory: Mapping[bytes, bytes] | None = None

    def completion(self, run: Rendering) -> Completion:
        """See `_Completion.completion`."""
        return complete_task(
            RunItem.of(run, self.item, self.row),
            self.finished,
            self.membership,
            known=self.known,
            call=self.call,
            memory=self.memory,
        )


@dataclass(frozen=True, slots=True)
class CompleteEvaluation(_Completion):
    """Reads the answer of evaluation ``step`` (from 1) of an output."""

    item: int
    row: Row
    step: int
    finished: FinishedJob
    output: str | None
    membership: SessionMembership | None = None

    def completion(self, run: Rendering) -> Completion:
        """See `_Completion.completion`."""
        item = RunItem.of(run, self.item, self.row)
        return complete_evaluation(item, self.step, self.finished, self.output, self.membership)


@dataclass(frozen=True, slots=True)
class CompleteSession(_Completion):
    """Reads the answer of evaluation ``step`` (from 0) of a session."""

    step: int
    finished: FinishedJob

    def completion(self, run: Rendering) -> Completion:
        """See `_Completion.completion`."""
        return complete_session_evaluation(run.spec.session_evals[self.step], self.finished)


@dataclass(frozen=True, slots=True)
class EvaluationDigests:
    """The cache keys of the evaluations of an output, by step."""

    what: ClassVar[str] = "evaluators"

    item: int
    row: Row
    output: str
    servers: Mapping[str, str]

    def work(self, rendering: Rendering | None) -> bytes:
        """Pairs of step and key as JSON."""
        item = RunItem.of(_needed(rendering), self.item, self.row)
        digests = render_evaluations(item, self.output).digests(item, self.servers)
        return _as_json([*digests.items()])

    def read(self, reply: bytes) -> dict[int, str]:
        """The keys by step."""
        return {int(step): str(digest) for step, digest in json.loads(reply)}


@dataclass(frozen=True, slots=True)
class FindFlaw:
    """Looks for a flaw of an answer for one criterion."""

    what: ClassVar[str] = "evaluators"

    answer: str
    criterion: Criterion

    def work(self, rendering: Rendering | None) -> bytes:
        """The flaw as JSON."""
        return _as_json(flaw(self.answer, self.criterion))

    def read(self, reply: bytes) -> str | None:
        """The flaw; ``None`` without one."""
        found = json.loads(reply)
        return None if found is None else str(found)


@dataclass(frozen=True, slots=True)
class CompileTemplates:
    """Compiles templates, by field, to check them."""

    what: ClassVar[str] = "templates"

    texts: Mapping[str, str]

    def work(self, rendering: Rendering | None) -> bytes:
        """Returns nothing. Raises `TemplateError` for the first that does not compile."""
        for name, text in self.texts.items():
            compile_template(name, text)
        return b""

    def read(self, reply: bytes) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True)
class ReadPage:
    """Decodes a page of rows. Each row returns as a text, and the parent parses only those that it needs."""

    what: ClassVar[str] = "rows"

    blob: bytes
    row_bytes: int

    def work(self, rendering: Rendering | None) -> bytes:
        """A line for each row: its JSON, or a JSON text with the reason why it cannot be read."""
        return _lines(lambda: bounded_rows(self.blob, self.row_bytes))

    def read(self, reply: bytes) -> list[bytes]:
        """The rows' JSON. Raises `BrokenPage`."""
        return _read_lines(reply, BrokenPage)


@dataclass(frozen=True, slots=True)
class ReadMembers:
    """Decodes a block of sessions. Each returns as a text, and the parent parses only those that it needs."""

    what: ClassVar[str] = "rows"

    blob: bytes
    rows: int

    def work(self, rendering: Rendering | None) -> bytes:
        """A line for each session, its rows as JSON; or ``!`` and why the block cannot be read."""
        return _lines(lambda: decode_members(self.blob, self.rows))

    def read(self, reply: bytes) -> list[bytes]:
        """The sessions' JSON. Raises `BrokenSessions`."""
        return _read_lines(reply, BrokenSessions)


def _lines(decode: Callable[[], Iterable[object]]) -> bytes:
    """A line of JSON for each decoded element; or ``!`` and the reason of a failure."""
    try:
        return b"\n".join(map(_as_json, decode()))
    except (BrokenPage, BrokenSessions) as broken:
        return b"!" + str(broken).encode(errors="replace")


def _read_lines(reply: bytes, broken: type[BrokenPage | BrokenSessions]) -> list[bytes]:
    if reply.startswith(b"!"):
        raise broken(reply[1:].decode(errors="replace"))
    return reply.split(b"\n") if reply else []


def _needed(rendering: Rendering | None) -> Rendering:
    if rendering is None:
        raise ValueError("this piece of work needs its run")
    return rendering


def _as_json(value: object) -> bytes:
    """A value as compact JSON; a set is a list."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=list)
    return text.encode("utf-8", "surrogatepass")
