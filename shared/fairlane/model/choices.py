"""The optional parts of a run's spec: its source, the run that it continues, its bounds, order and cache."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

MOST_STEPS = 1 + 50 * 100
"""Jobs of an item: its task, and fifty evaluators of a hundred criteria."""

OldIndex = Annotated[int, Field(ge=-1, le=MOST_STEPS)]

LEAST_RATE = 1e-6
"""Starts per second: a rate below one in eleven days is a mistake, and its gap has no end."""

MOST_SECONDS = 1e9
"""Of a run's bounds: thirty years."""

LATEST_MS = 253_402_300_799_000
"""The end of the year 9999, beyond which there are no dates."""

MOST_NUMBER = 1e15
"""Of all other numbers of a spec. Scripts compute with doubles, and times of 64 bits."""

Rate = Annotated[float, Field(ge=0, le=MOST_NUMBER)] | Literal["auto"]

CacheMode = Literal["off", "read", "read_write"]

OnRefusal = Literal["fail", "hold"]
TurnField = Literal["prompt", "input", "output"]


class Choice(BaseModel):
    """A part of a run's spec."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Source(Choice):
    """Rows that the scheduler reads itself, a page at a time: a path or a URL that fsspec opens."""

    url: str = Field(min_length=1, max_length=2000)
    format: Literal["jsonl", "json", "csv", "tsv", "parquet"]


class Continuation(Choice):
    """The finished run that this one continues, and which of its cells are which of this run's.

    For each prompt, model and evaluation step of this run it has the index in the old run, or -1. The client
    writes the old index of each row in pages, beside the rows.
    """

    run: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    prompts: tuple[OldIndex, ...] = Field(max_length=100)
    models: tuple[OldIndex, ...] = Field(max_length=100)
    steps: tuple[OldIndex, ...] = Field(max_length=MOST_STEPS)
    repetitions: int = Field(ge=1, le=10_000)
    old_prompts: int = Field(default=1, ge=1, le=100)
    old_models: int = Field(default=1, ge=1, le=100)
    old_steps: int = Field(default=1, ge=1, le=MOST_STEPS)
    retry_errors: bool = True


class Bounds(Choice):
    """A run's own limits, beside those of its lanes.

    ``ahead``: the most items whose task has started and whose evaluations have not ended. ``None`` means
    twice the calls that their lanes can have in flight now, 0 no limit. Rates are starts per second, within
    what the lanes allow. A number is fixed, 0 adds no limit of the run, and "auto" follows the other role
    (`RunSpec.role_rates`). ``delay`` is the least time between two starts on a lane, in seconds.
    ``max_duration`` is in seconds. Jobs that wait for a lane that is down fail after ``max_outage`` seconds.
    ``start_ms``: no call of the run starts before then, by the server's clock. ``on_refusal``: whether the
    other jobs for a model that rejects the run's first calls alike fail, or are held until the run is
    resumed.
    """

    max_concurrent: int | None = Field(default=None, ge=1)
    ahead: int | None = Field(default=None, ge=0)
    task_rate: Rate = "auto"
    eval_rate: Rate = "auto"
    delay: float = Field(default=0.0, ge=0, le=86_400)
    max_duration: float | None = Field(default=None, gt=0, le=MOST_SECONDS)
    max_outage: float = Field(default=3600.0, gt=0, le=MOST_SECONDS)
    on_refusal: OnRefusal = "fail"
    budget_tokens: int | None = Field(default=None, ge=1)
    budget_usd: float | None = Field(default=None, gt=0)
    start_ms: int | None = Field(default=None, ge=0, le=LATEST_MS)

    @field_validator("task_rate", "eval_rate")
    @classmethod
    def _starts_some_day(cls, rate: Rate) -> Rate:
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
    ``None``: all rows are one conversation. ``turn_fields``: what prompts read of an earlier turn, which is
    all that is kept of it.
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
