"""Reads, checks and prints a team's shares, as options of a command."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from fairlane.config.sections import TeamSettings
from fairlane.core.errors import ConfigurationError
from fairlane.store.write.registry import TeamRecord

NO_LIMIT = "none"
ALL = 100.0
_FIELDS = {
    "--lendable": "lendable_percent",
    "--borrowing-limit": "borrowing_limit_percent",
    "--max": "max_percent",
}
_RANGES = {
    "--lendable": f'Give 0 to 100, or "{NO_LIMIT}".',
    "--borrowing-limit": f'Give 0 or more, or "{NO_LIMIT}".',
    "--max": f'Give more than 0, up to 100, or "{NO_LIMIT}".',
}


def with_changes(before: TeamRecord, weight: float | None, changes: Mapping[str, float | None]) -> TeamRecord:
    """What is said of a team, after what was said before: a weight, and percentages by option. Raises
    `ConfigurationError` for one that is out of range.
    """
    said = {_FIELDS[option]: value for option, value in changes.items()}
    if weight is not None:
        said["weight"] = weight
    try:
        return TeamRecord.model_validate(before.model_dump() | said)
    except ValidationError as error:
        field = str(error.errors()[0]["loc"][0])
        option = next(option for option, of in _FIELDS.items() if of == field)
        raise ConfigurationError(option, said[field], "is out of range", _RANGES[option]) from None


def percent(option: str, text: str) -> float | None:
    """A percentage, or ``None`` for "none". Raises `ConfigurationError`."""
    if text.strip().lower() == NO_LIMIT:
        return None
    try:
        return float(text.strip().removesuffix("%"))
    except ValueError:
        raise ConfigurationError(option, text, "is no percentage", _RANGES[option]) from None


def bounds_in_words(claim: TeamSettings) -> str:
    """What is said of a team's shares beside its weight, to follow on it."""
    said = {
        "lends": claim.lendable_percent if claim.lendable_percent < ALL else None,
        "borrows at most": claim.borrowing_limit_percent,
        "never has more of a lane than": claim.max_percent,
    }
    return "".join(f", {words} {part(value)}" for words, value in said.items() if value is not None)


def part(percent: object) -> str:
    """A percentage, or that there is none."""
    return "any" if percent is None else f"{percent:g} %"
