"""Parts of a run's spec: messages, row source, continued run; spec versions, and the bounds of numbers."""

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

MOST_STEPS = 1 + 50 * 100
"""Jobs of an item: its task, and fifty evaluators of a hundred criteria."""

OldIndex = Annotated[int, Field(ge=-1, le=MOST_STEPS)]

LEAST_RATE = 1e-6
"""Starts per second: a rate below one in eleven days is a mistake."""

MOST_SECONDS = 1e9
"""Most seconds of a run's bounds: thirty years."""

LATEST_MS = 253_402_300_799_000
"""The end of the year 9999, beyond which there are no dates."""

MOST_NUMBER = 10**15
"""Bounds all other numbers of a spec: Lua scripts compute with doubles, and times have 64 bits."""

MOST_USD = 10**9
"""Most dollars of a run: scripts count in millionths, at most `MOST_NUMBER` of them."""

Score = Annotated[float, Field(ge=-MOST_NUMBER, le=MOST_NUMBER)]


# A name is shown in tables, logs and titles: no control characters, and none that reverse or hide text.
PRINTABLE = r"^[^\p{Cc}\p{Zl}\p{Zp}\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff]*$"

SPEC_VERSION = 5
"""The latest version of a spec that this version reads."""

START_TIME_VERSION = 2
"""The spec version that added ``Bounds.start_ms``: an earlier scheduler would start the run at once."""

UNSTATED_SPEC_VERSION = 3
"""The latest spec version that a process reads if its heartbeat or lease names none."""

TURN_FIELDS_VERSION = 4
"""The spec version from which each turn has its own field in the run's memory. Up to version 3, the first
with ``Order.turns``, all turns of a conversation share one field."""

TURN_MESSAGES_VERSION = 5
"""The spec version that added messages of the role `CONVERSATION`: earlier workers would send that role."""

CONVERSATION = "_conversation"
"""The variable with the turns before an item: a list of ``{"prompt", "input", "output"}``, or of those parts
that the run's prompts read. Also the role of the message in whose place these turns are sent as messages."""


class Choice(BaseModel):
    """A part of a run's spec."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Message(Choice):
    """One chat message whose content is a Jinja2 template over the row."""

    role: str = Field(min_length=1, max_length=32)
    content: str


Format: TypeAlias = Literal["jsonl", "json", "csv", "tsv", "parquet"]


class Source(Choice):
    """Rows that the scheduler reads itself, a page at a time: a path or a URL that fsspec opens."""

    url: str = Field(min_length=1, max_length=2000)
    format: Format


class Continuation(Choice):
    """The finished run that this one continues, and how its cells map to this run's.

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
