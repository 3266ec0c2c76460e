"""A run and its items: what a user submits, how its cells are numbered, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from fairlane.evaluators.spec import EvaluatorSpec, Judge
from fairlane.job import JobState, Usage
from fairlane.retry import RetryPolicy

SPEC_VERSION = 1


class Message(BaseModel):
    """One chat message whose content is a Jinja2 template over the row."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: str = Field(min_length=1, max_length=32)
    content: str


class RunSpec(BaseModel):
    """What a client writes and the scheduler admits. Rows lie beside it, in pages of ``page_rows``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = SPEC_VERSION
    run: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    team: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    name: str = Field(max_length=200)
    prompts: tuple[tuple[Message, ...], ...] = Field(min_length=1, max_length=100)
    models: tuple[str, ...] = Field(min_length=1, max_length=100)
    params: dict[str, Any] = Field(default_factory=dict)
    repetitions: int = Field(default=1, ge=1, le=10_000)
    evaluators: tuple[EvaluatorSpec, ...] = Field(default=(), max_length=50)
    priority: int = Field(default=0, ge=-100, le=100)
    timeout: float = Field(default=120.0, gt=0, le=86_400)
    retry: RetryPolicy = RetryPolicy()
    rows: int = Field(ge=0)
    page_rows: int = Field(ge=1, le=10_000)
    submitted_ms: int = Field(ge=0)

    @property
    def judges(self) -> tuple[Judge, ...]:
        """The evaluators that are calls of their own; judge k is step k of an item."""
        return tuple(e for e in self.evaluators if isinstance(e, Judge))

    @property
    def steps(self) -> int:
        """Jobs an item has: its task and its judges."""
        return 1 + len(self.judges)

    @property
    def cells_per_row(self) -> int:
        return len(self.prompts) * len(self.models) * self.repetitions

    @property
    def items(self) -> int:
        return self.rows * self.cells_per_row

    @property
    def jobs(self) -> int:
        return self.items * self.steps


class Plan(BaseModel):
    """A run as the scheduler admitted it: the spec, and on which lane each judge's calls go."""

    model_config = ConfigDict(frozen=True)

    spec: RunSpec
    judge_lanes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cell:
    """An item's coordinates: indices of row, prompt, model and repetition (all from 0)."""

    row: int
    prompt: int
    model: int
    repetition: int


def cell_of(spec: RunSpec, item: int) -> Cell:
    """The coordinates of an item; rows are outermost, so that a page of rows is a range of items."""
    rest, repetition = divmod(item, spec.repetitions)
    rest, model = divmod(rest, len(spec.models))
    row, prompt = divmod(rest, len(spec.prompts))
    return Cell(row=row, prompt=prompt, model=model, repetition=repetition)


class RunState(StrEnum):
    """SUBMITTED → RUNNING → COMPLETED | CANCELLED; SUBMITTED → REFUSED."""

    SUBMITTED = "submitted"
    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    REFUSED = "refused"

    @property
    def finished(self) -> bool:
        return self in (RunState.COMPLETED, RunState.CANCELLED, RunState.REFUSED)


@dataclass(frozen=True, slots=True)
class LaneProgress:
    """One lane's part of a run: jobs known to belong to it, and those that are over."""

    lane: str
    known: int
    done: int


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A run at one moment. ``jobs_done / jobs`` reaches exactly 1 when the run is finished."""

    run: str
    team: str
    name: str
    state: RunState
    items: int
    items_done: int
    jobs: int
    jobs_done: int
    by_state: Mapping[JobState, int]
    in_flight: int
    retries: int
    rate_limits: int
    late_reports: int
    lanes: tuple[LaneProgress, ...]
    submitted_ms: int
    started_ms: int | None
    finished_ms: int | None
    reason: str | None = None

    @property
    def progress(self) -> float:
        """Share of jobs that are over, 0 to 1; an empty run is complete."""
        return self.jobs_done / self.jobs if self.jobs else float(self.state.finished)


@dataclass(frozen=True, slots=True)
class Record:
    """The one terminal record of an item: its task's outcome and every evaluator's score.

    ``scores`` maps evaluator name → score, ``None`` where that evaluator did not produce one (then
    ``score_errors`` says why). ``output`` is ``None`` unless the task succeeded.
    """

    item: int
    row: Mapping[str, Any]
    model: str
    prompt: int
    repetition: int
    state: JobState
    output: str | None
    scores: Mapping[str, float | None]
    score_errors: Mapping[str, str]
    usage: Usage
    attempts: int
    error: str | None
    latency_ms: int | None = None
