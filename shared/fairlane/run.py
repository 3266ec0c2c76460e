"""A run and its items: what a user submits, how its cells are numbered, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fairlane.choices import Bounds, CacheChoice, Order, Resumption, Source
from fairlane.evaluators.spec import EvaluatorSpec
from fairlane.evaluators.steps import Step, item_steps, session_steps
from fairlane.job import JobState, Usage
from fairlane.lane import FUNCTIONS
from fairlane.retry import RetryPolicy

SPEC_VERSION = 1


class Message(BaseModel):
    """One chat message whose content is a Jinja2 template over the row."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: str = Field(min_length=1, max_length=32)
    content: str


class Written(BaseModel):
    """What one process writes and another reads, perhaps of a neighbouring version."""

    @classmethod
    def read(cls, text: str | bytes) -> Self:
        """What was written as JSON; fields that a later version has added are passed over.

        Raises ``ValidationError``, also for a version that is not known here.
        """
        return cls.model_validate_json(text, extra="ignore")


class RunSpec(Written):
    """What a client writes and the scheduler admits. Rows lie beside it, in pages of ``page_rows``.

    A task is a call of a model with a prompt; with ``request_field`` with the row's own chat body; with
    ``output_field`` no call at all: the row holds the output that is to be judged. A model "python:…" is a
    function, which takes the row. ``open``: rows are still being written, so ``rows`` says nothing yet.
    ``trace``: where its calls are traced, the W3C ``traceparent`` of its submission.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = Field(default=SPEC_VERSION, ge=1, le=SPEC_VERSION)
    run: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    team: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    name: str = Field(max_length=200)
    prompts: tuple[tuple[Message, ...], ...] = Field(default=(), max_length=100)
    models: tuple[str, ...] = Field(default=(), max_length=100)
    params: dict[str, Any] = Field(default_factory=dict)
    repetitions: int = Field(default=1, ge=1, le=10_000)
    evaluators: tuple[EvaluatorSpec, ...] = Field(default=(), max_length=50)
    priority: int = Field(default=0, ge=-100, le=100)
    interactive: bool = False
    timeout: float = Field(default=120.0, gt=0, le=86_400)
    retry: RetryPolicy = RetryPolicy()
    output_field: str | None = None
    request_field: str | None = None
    lane: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.:\-]{1,100}$")
    session_field: str | None = None
    sessions: int = Field(default=0, ge=0)
    bounds: Bounds = Bounds()
    order: Order = Order()
    cache: CacheChoice = CacheChoice()
    source: Source | None = None
    resumes: Resumption | None = None
    trace: str | None = Field(default=None, pattern=r"^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$")
    open: bool = False
    rows: int = Field(ge=0)
    page_rows: int = Field(ge=1, le=10_000)
    submitted_ms: int = Field(ge=0)

    @model_validator(mode="after")
    def _has_a_task(self) -> Self:
        """Somebody does the task, and is told what it is."""
        if self.output_field is not None:
            if self.models or self.prompts:
                raise ValueError("models: outputs are given (output_field), so there is no task to do")
            return self
        if not self.models:
            raise ValueError("models: give 1 to 100 models")
        functions = all(model.startswith(f"{FUNCTIONS}:") for model in self.models)
        if not (self.prompts or functions or self.request_field is not None):
            raise ValueError("prompts: give 1 to 100 prompts")
        return self

    @cached_property
    def evals(self) -> tuple[Step, ...]:
        """The evaluation jobs of an item: the k-th is its step k + 1."""
        return item_steps(self.evaluators)

    @cached_property
    def session_evals(self) -> tuple[Step, ...]:
        """The evaluation jobs of a session in each of its cells."""
        return session_steps(self.evaluators)

    @cached_property
    def steps(self) -> int:
        """Jobs an item has: its task and its evaluations."""
        return 1 + len(self.evals)

    def labels(self, job: int) -> dict[str, str]:
        """What log lines about a job carry beside the attempt's fields: an agent's evaluation is named."""
        step = job % self.steps
        if step == 0 or (self.session_evals and job >= self.items * self.steps):
            return {}
        return self.evals[step - 1].labels

    @property
    def calls_tasks(self) -> bool:
        """Whether tasks are called; else their outputs are given."""
        return self.output_field is None

    @cached_property
    def cells_per_row(self) -> int:
        return max(1, len(self.prompts)) * max(1, len(self.models)) * self.repetitions

    @property
    def items(self) -> int:
        return self.rows * self.cells_per_row

    @property
    def session_jobs(self) -> int:
        return self.sessions * self.cells_per_row * len(self.session_evals)

    @property
    def jobs(self) -> int:
        """What progress counts: calls of tasks and evaluations, whether or not they come to be made."""
        return self.items * (self.steps if self.calls_tasks else self.steps - 1) + self.session_jobs


class Plan(Written):
    """A run as the scheduler admitted it: the spec, and on which lane the calls of each evaluation go.

    ``unstructured`` are the connections whose answers cannot be held to a schema: batches are asked one by
    one.
    """

    model_config = ConfigDict(frozen=True)

    spec: RunSpec
    eval_lanes: tuple[str, ...] = ()
    session_lanes: tuple[str, ...] = ()
    unstructured: tuple[str, ...] = ()


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
    rest, model = divmod(rest, max(1, len(spec.models)))
    row, prompt = divmod(rest, max(1, len(spec.prompts)))
    return Cell(row=row, prompt=prompt, model=model, repetition=repetition)


class RunState(StrEnum):
    """SUBMITTED → RUNNING → COMPLETED | CANCELLED | TIMED_OUT | STOPPED; SUBMITTED → REFUSED.

    TIMED_OUT: its ``max_duration`` was over. STOPPED: its budget would have been exceeded.
    """

    SUBMITTED = "submitted"
    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    STOPPED = "stopped"
    REFUSED = "refused"

    @property
    def finished(self) -> bool:
        return self not in (RunState.SUBMITTED, RunState.RUNNING)


@dataclass(frozen=True, slots=True)
class LaneProgress:
    """One lane's part of a run: jobs known to belong to it, and those that are over."""

    lane: str
    known: int
    done: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Since when a run is held back (server time), and by whom, as their client said: it may be empty."""

    since_ms: int
    by: str


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A run at one moment. ``jobs_done / jobs`` reaches exactly 1 when the run is finished.

    ``paused`` is there while a running run starts nothing because somebody asked for that.
    """

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
    paused: Pause | None = None

    @property
    def progress(self) -> float:
        """Share of jobs that are over, 0 to 1; an empty run is complete."""
        return self.jobs_done / self.jobs if self.jobs else float(self.state.finished)


@dataclass(frozen=True, slots=True)
class Record:
    """The one terminal record of an item: its task's outcome and every evaluator's score.

    ``scores`` maps evaluator name → score, ``None`` where that evaluator did not produce one (then
    ``score_errors`` says why). ``output`` is ``None`` unless the task succeeded.
    ``eval_usage`` is what each evaluation's call used.
    ``arguments`` is what agents said for their scores, by the same names.
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
    cached: bool = False
    eval_usage: Mapping[str, Usage] = field(default_factory=dict)
    finish_reason: str | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
