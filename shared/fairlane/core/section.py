"""The base of all sections of the settings: frozen, and unknown keys are errors."""

from __future__ import annotations

from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError


class Section(BaseModel):
    """A table of the configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Mistake(NamedTuple):
    """A mistake that a validator finds: its path below the validated value, and a remedy."""

    path: tuple[str, ...]
    problem: str
    remedy: str
    value: object = None


def refusal(section: type[BaseModel], *mistakes: Mistake) -> ValidationError:
    """The error for a validator to raise: it reports each mistake with its own path and remedy."""
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
