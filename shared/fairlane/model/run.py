"""Runs and items: the submitted spec, the numbering of cells, and a run's states."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from fairlane.model.choices import (
    LATEST_MS,
    LEAST_RATE,
    MOST_NUMBER,
    MOST_SECONDS,
    MOST_USD,
    PRINTABLE,
    SPEC_VERSION,
    START_TIME_VERSION,
    TURN_FIELDS_VERSION,
    Choice,
    Continuation,
    Message,
    Source,
)
from fairlane.model.decision import RetryPolicy
from fairlane.model.evaluators import EvaluatorSpec
from fairlane.model.lane import FUNCTIONS
from fairlane.model.steps import Step, item_steps, session_steps

AUTO_HEADROOM = 1.25
"""Tasks under "auto" start so much faster than a fixed rate of evaluations needs: a fifth of them may fail
before evaluations wait for tasks."""

Rate = Annotated[float, Field(ge=0, le=MOST_NUMBER)] | Literal["auto"]

CacheMode = Literal["off", "read", "read_write"]

OnRefusal = Literal["fail", "hold"]
TurnField = Literal["prompt", "input", "output"]


class Bounds(Choice):
    """A run's own limits, beside those of its lanes.

    ``ahead``: the most items whose task has started and whose evaluations have not ended. ``None`` means
    twice the calls that their lanes can have in flight now, 0 no limit. Rates are starts per second, within
    what the lanes allow. A number is fixed, 0 adds no limit of the run, and "auto" follows the other role
    (`RunSpec.role_rates`). ``delay`` is the least time between two starts on a lane, in seconds.
    ``max_duration`` is in seconds. Jobs that wait for a lane that answers nobody fail after ``max_outage``
    seconds. ``start_ms``: no call of the run starts before then, by the server's clock. ``on_refusal``: if a
    model rejects the run's first calls alike, its other jobs fail, or wait until the run is resumed.
    """

    max_concurrent: int | None = Field(default=None, ge=1, le=MOST_NUMBER)
    ahead: int | None = Field(default=None, ge=0, le=MOST_NUMBER)
    task_rate: Rate = "auto"
    eval_rate: Rate = "auto"
    delay: float = Field(default=0.0, ge=0, le=86_400)
    max_duration: float | None = Field(default=None, gt=0, le=MOST_SECONDS)
    max_outage: float = Field(default=3600.0, gt=0, le=MOST_SECONDS)
    on_refusal: OnRefusal = "fail"
    budget_tokens: int | None = Field(default=None, ge=1, le=MOST_NUMBER)
    budget_usd: float | None = Field(default=None, gt=0, le=MOST_USD)
    start_ms: int | None = Field(default=None, ge=0, le=LATEST_MS)

    @field_validator("task_rate", "eval_rate")
    @classmethod
    def _above_least(cls, rate: Rate) -> Rate:
        if not isinstance(rate, str) and 0 < rate < LEAST_RATE:
            raise ValueError(f"a rate is 0, or {LEAST_RATE:g} a second at least")
        return rate


class Order(Choice):
    """Which items run one at a time, each after the one before has ended.

    ``serial``: all items. ``turns``: those of a conversation, beside other conversations; each prompt, model
    and repetition has conversations of its own. ``serial_field``: the items whose row has this field set;
    they run before all others. ``store_output_as``: a template over the row that names the output; templates
    of later items can use it by that name. ``conversation``: prompts can read the turns before theirs.
    ``conversation_field``: rows that share its value are one conversation, and a row without one is in none;
    ``None``: all rows are one conversation. ``turn_fields``: what prompts read of an earlier turn; nothing
    else of it is stored.
    """

    serial: bool = False
    turns: bool = False
    serial_field: str | None = None
    store_output_as: str | None = None
    conversation: bool = False
    conversation_field: str | None = None
    turn_fields: tuple[TurnField, ...] = ("prompt", "input", "output")

    @model_validator(mode="after")
    def _has_one_order(self) -> Self:
        if self.turns and (self.serial or self.serial_field is not None or self.store_output_as is not None):
            raise ValueError("turns: serial, serial_field or store_output_as orders all items already")
        return self

    @property
    def remembers(self) -> bool:
        """Whether later items read outputs of earlier ones."""
        return self.conversation or self.store_output_as is not None

    @property
    def waits_for_items(self) -> bool:
        """Whether the end of an item lets another one begin."""
        return self.serial or self.turns or self.serial_field is not None


class CacheChoice(Choice):
    """Whether the team's cache answers equal calls; ``ttl`` is how many seconds it keeps an answer."""

    mode: CacheMode = "off"
    ttl: float = Field(default=7 * 86_400.0, gt=0, le=MOST_SECONDS)

    @property
    def reads(self) -> bool:
        """Whether the run takes answers from the cache."""
        return self.mode != "off"

    @property
    def writes(self) -> bool:
        """Whether the run adds its answers to the cache."""
        return self.mode == "read_write"


@dataclass(frozen=True, slots=True)
class RunRef:
    """Names a run: its team and its id."""

    team: str
    run: str

    def __str__(self) -> str:
        return f"{self.team}/{self.run}"

    @classmethod
    def parse(cls, text: str) -> RunRef:
        """The inverse of `str`."""
        team, _, run = text.partition("/")
        return cls(team, run)


class StoredModel(BaseModel):
    """A document that one process stores and another reads, perhaps in another version."""

    @classmethod
    def read(cls, text: str | bytes) -> Self:
        """Parse stored JSON; fields that a newer version added are ignored.

        Raises ``ValidationError``, also for an unknown version.
        """
        return cls.model_validate_json(text, extra="ignore")


class RunSpec(StoredModel):
    """A run as a client submits it. Its rows are stored beside it, in pages of ``page_rows``.

    A task calls a model with a prompt, or with the chat body in the row's ``request_field``. With
    ``output_field`` there is no call: the row holds the output to score. A model "python:…" is a function
    that takes the row. ``open``: the client still writes rows, so ``rows`` is not final. ``trace`` is the W3C
    ``traceparent`` of the submission, if it is traced. ``short_results``: its client reads results that are
    stored as lists. ``version`` is the earliest spec version that supports all its fields.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    version: int = Field(default=1, ge=1, le=SPEC_VERSION)
    run: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    team: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    name: str = Field(max_length=200, pattern=PRINTABLE)
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
    sessions: int = Field(default=0, ge=0, le=MOST_NUMBER)
    bounds: Bounds = Bounds()
    order: Order = Order()
    cache: CacheChoice = CacheChoice()
    source: Source | None = None
    continues: Continuation | None = None
    trace: str | None = Field(default=None, pattern=r"^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$")
    open: bool = False
    short_results: bool = False
    rows: int = Field(ge=0, le=MOST_NUMBER)
    page_rows: int = Field(ge=1, le=10_000)
    submitted_ms: int = Field(ge=0, le=LATEST_MS)

    @model_validator(mode="after")
    def _has_a_task(self) -> Self:
        """A run has outputs in its rows, or models with something to send them."""
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

    @property
    def admitted(self) -> Self:
        """The spec for a `Plan`, in a version that earlier workers read if the run's state enforces the
        rest.
        """
        return self.model_copy(update={"version": 1}) if self.version == START_TIME_VERSION else self

    @property
    def continued(self) -> RunRef | None:
        """The run that this one continues."""
        return None if self.continues is None else RunRef(self.team, self.continues.run)

    @property
    def keeps_turns_apart(self) -> bool:
        """Whether each turn of a conversation has a field of its own in the run's memory."""
        return self.order.conversation and self.version >= TURN_FIELDS_VERSION

    @property
    def one_at_a_time(self) -> bool:
        """Whether no two of its items run side by side."""
        alone = self.order.conversation_field is None and self.cells_per_row == 1
        return self.order.serial or (self.order.turns and alone)

    @cached_property
    def evals(self) -> tuple[Step, ...]:
        """The evaluation jobs of an item: the k-th is its step k + 1."""
        return item_steps(self.evaluators) if self.evaluators else ()

    @cached_property
    def session_evals(self) -> tuple[Step, ...]:
        """The evaluation jobs of a session in each of its cells."""
        return session_steps(self.evaluators) if self.evaluators else ()

    @cached_property
    def steps(self) -> int:
        """Jobs an item has: its task and its evaluations."""
        return 1 + len(self.evals)

    def labels(self, job: int) -> dict[str, str]:
        """Further fields of log lines about a job: an agent's evaluation is named."""
        step = job % self.steps
        if step == 0 or (self.session_evals and job >= self.items * self.steps):
            return {}
        return self.evals[step - 1].labels

    @property
    def calls_tasks(self) -> bool:
        """Whether tasks are called; otherwise the rows hold their outputs."""
        return self.output_field is None

    @property
    def role_rates(self) -> tuple[float | None, float | None]:
        """Starts per second of tasks and of evaluations that the run itself sets; ``None``: it sets none.

        Under "auto" a role keeps up with the other's fixed rate, and beyond that the lanes adapt. Slow start
        and rate cuts belong to a lane, for all runs on it.
        """
        task, evaluation = self.bounds.task_rate, self.bounds.eval_rate
        if not isinstance(task, str):
            derived = task * max(1, len(self.evals))
            return task or None, (derived if isinstance(evaluation, str) else evaluation) or None
        if isinstance(evaluation, str):
            return None, None
        follows = AUTO_HEADROOM * evaluation / len(self.evals) if self.evals else 0
        return follows or None, evaluation or None

    @cached_property
    def cells_per_row(self) -> int:
        """Items that each row has: prompts × models × repetitions."""
        return max(1, len(self.prompts)) * max(1, len(self.models)) * self.repetitions

    @property
    def items(self) -> int:
        """Items of the run."""
        return self.rows * self.cells_per_row

    @property
    def session_jobs(self) -> int:
        """Evaluation jobs of all sessions."""
        return self.sessions * self.cells_per_row * len(self.session_evals)

    @property
    def jobs(self) -> int:
        """Jobs that progress counts: tasks and evaluations, also those that end without a call."""
        return self.items * (self.steps if self.calls_tasks else self.steps - 1) + self.session_jobs


PROMPT_CHARS = 1 << 20
"""Least bound on a rendered text, in characters: 1 Mi is more than most contexts."""


def most_chars(row_bytes: int, answer_bytes: int = 0) -> int:
    """Most characters of a rendered text: it may show a row twice, and an answer beside it."""
    return max(PROMPT_CHARS, 2 * row_bytes) + answer_bytes


class Plan(StoredModel):
    """A run as the scheduler admitted it: the spec, and the lane of each evaluation.

    ``unstructured`` are connections without structured output: agents make one call per criterion there.
    ``tooled`` are those where a tool's arguments take the place of a schema.
    ``responses`` are those that speak OpenAI's Responses API: others get requests for it as chats.
    ``prompt_chars`` bounds each rendered text of a task, ``judged_chars`` one that shows an output.
    """

    model_config = ConfigDict(frozen=True)

    spec: RunSpec
    eval_lanes: tuple[str, ...] = ()
    session_lanes: tuple[str, ...] = ()
    unstructured: tuple[str, ...] = ()
    tooled: tuple[str, ...] = ()
    responses: tuple[str, ...] = ()
    prompt_chars: int = PROMPT_CHARS
    judged_chars: int = PROMPT_CHARS

    def known_jobs(self, items: int) -> dict[str, int]:
        """Evaluations that ``items`` more items add, by lane, as fields of the run's state in Redis."""
        known = Counter[str]()
        for lane in self.eval_lanes:
            known[f"known:{lane}"] += items
        for lane in self.session_lanes:
            known[f"known:{lane}"] += self.spec.sessions * self.spec.cells_per_row
        return dict(known)


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

    TIMED_OUT: its ``max_duration`` ended. STOPPED: the next call would exceed its budget.
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
        """Whether the state is final."""
        return self not in (RunState.SUBMITTED, RunState.RUNNING)
