"""What every section of the settings is: frozen, and without keys that nobody knows."""

from __future__ import annotations

from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError


class Section(BaseModel):
    """A table of the configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Mistake(NamedTuple):
    """What a validator finds wrong: where, below what it validates, and what to do about it."""

    path: tuple[str, ...]
    problem: str
    remedy: str
    value: object = None


def refusal(section: type[BaseModel], *mistakes: Mistake) -> ValidationError:
    """To be raised by a validator: each mistake is told with its own path and remedy."""
    return ValidationError.from_exception_data(
        section.__name__,
        [
            InitErrorDetails(
                type=PydanticCustomError("mistake", "{problem}", {"problem": problem, "remedy": remedy}),
                loc=path,
                input=value,
            )
            for path, problem, remedy, value in mistakes
        ],
    )
