"""Where a run's rows and known results come from: a source, and the run that it continues."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


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

    run: str
    prompts: tuple[int, ...]
    models: tuple[int, ...]
    steps: tuple[int, ...]
    repetitions: int
    old_prompts: int = 1
    old_models: int = 1
    old_steps: int = 1
    retry_errors: bool = True
