"""Parts of a run's spec: its messages, its source, the run that it continues; its versions and bounds."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

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


# A name is shown in tables, logs and titles: no control characters, no marks that turn or hide its signs.
SHOWN = r"^[^\p{Cc}\p{Zl}\p{Zp}\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff]*$"

SPEC_VERSION = 4
"""The latest version of a spec that this version reads."""

STARTS_LATER = 2
"""The version of a spec with ``Bounds.start_ms``: an earlier scheduler would start the run at once."""

UNSAID_SPECS = 3
"""The latest version of a spec that a process reads whose heartbeat or lease does not say which."""

TURN_FIELDS = 4
"""The version of a spec whose turns each have a field of the run's memory. In version 3, the first with
``Order.turns``, and in those before, all turns of a conversation stand in one field."""


class Choice(BaseModel):
    """A part of a run's spec."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Message(Choice):
    """One chat message whose content is a Jinja2 template over the row."""

    role: str = Field(min_length=1, max_length=32)
    content: str


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
