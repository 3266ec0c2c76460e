"""What a run may be told beside its cells: bounds, order, cache, where its rows are, what it goes on from."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Rate = Annotated[float, Field(ge=0)] | Literal["auto"]
CacheMode = Literal["off", "read", "read_write"]


class _Choice(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Bounds(_Choice):
    """What holds a run back, beside what its lanes allow.

    ``ahead``: items whose task has begun and whose evaluations are not over; ``None``: twice the window of
    the widest evaluation lane, 0: any number. Rates are starts a second: "auto" leaves them to the lanes, 0
    does, too, and a number is kept, where the lanes allow it. ``eval_rate`` left out is ``task_rate`` ×
    evaluations an item. ``delay`` is the least time between two starts on a lane, in seconds.
    ``max_duration`` is in seconds.
    """

    max_concurrent: int | None = Field(default=None, ge=1)
    ahead: int | None = Field(default=None, ge=0)
    task_rate: Rate = Field(default="auto")
    eval_rate: Rate | None = None
    delay: float = Field(default=0.0, ge=0, le=86_400)
    max_duration: float | None = Field(default=None, gt=0)
    budget_tokens: int | None = Field(default=None, ge=1)
    budget_usd: float | None = Field(default=None, gt=0)


class Order(_Choice):
    """Which items go one at a time, each over before the next begins.

    ``serial``: all of them. ``serial_field``: those whose row has this field set, before all others.
    ``store_output_as``: a template over the row; what it gives names the output for the templates of later
    items. ``conversation``: prompts read the turns before theirs; ``conversation_field``: rows that share its
    value are one conversation, else all rows are.
    """

    serial: bool = False
    serial_field: str | None = None
    store_output_as: str | None = None
    conversation: bool = False
    conversation_field: str | None = None

    @property
    def remembers(self) -> bool:
        """Whether later items read what earlier ones said."""
        return self.conversation or self.store_output_as is not None


class CacheChoice(_Choice):
    """Whether equal calls are answered from the team's cache, and for how long an answer is kept, in
    seconds.
    """

    mode: CacheMode = "off"
    ttl: float = Field(default=7 * 86_400.0, gt=0)

    @property
    def reads(self) -> bool:
        return self.mode != "off"

    @property
    def writes(self) -> bool:
        return self.mode == "read_write"


class Source(_Choice):
    """Rows that the scheduler reads itself, a page at a time: a path or a URL that fsspec opens."""

    url: str = Field(min_length=1, max_length=2000)
    format: Literal["jsonl", "json", "csv"]


class Resumption(_Choice):
    """The run that this one goes on from, and where its cells were there.

    Indices are the old run's; -1 where it had none. Steps are the old numbers of this run's evaluations. Rows
    are told page by page, beside the rows.
    """

    run: str
    prompts: tuple[int, ...]
    models: tuple[int, ...]
    steps: tuple[int, ...]
    repetitions: int
    old_prompts: int = 1
    old_models: int = 1
    old_steps: int = 1
    retry_errors: bool = True
