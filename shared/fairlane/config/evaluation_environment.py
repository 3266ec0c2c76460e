"""Defaults of a run from six environment variables that other evaluation tools use, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from fairlane.core.errors import ConfigurationError
from fairlane.core.section import first_flaw
from fairlane.model.decision import RetryPolicy
from fairlane.model.evaluators import Agent

MAX_CONCURRENT = "MAX_CONCURRENT_LLM_CALLS"
INITIAL_DELAY, MAX_DELAY = "RETRY_INITIAL_DELAY", "RETRY_MAX_DELAY"
MAX_ATTEMPTS = "RETRY_MAX_ATTEMPTS"
BATCHING = "BATCHING_ENABLED"
TIMEOUT = "LLM_CALL_TIMEOUT"

NAMES = (MAX_CONCURRENT, INITIAL_DELAY, MAX_DELAY, MAX_ATTEMPTS, BATCHING, TIMEOUT)

_RETRY_FIELDS = {INITIAL_DELAY: "initial_delay", MAX_DELAY: "max_delay", MAX_ATTEMPTS: "max_attempts"}
_YES, _NO = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})
_MOST_SECONDS = 86_400

Value = TypeVar("Value")


class _VariableBelowOne(ConfigurationError):
    """A count in an environment variable is below 1. Other tools print the same message."""

    def __init__(self, name: str, value: int) -> None:
        super().__init__(name, value, "must be >= 1")

    def __str__(self) -> str:
        return f"{self.field} must be >= 1, got {self.value}"


@dataclass(frozen=True, slots=True)
class EvaluationDefaults:
    """Defaults of arguments that a submission leaves out; ``None``: the environment has none.

    ``retry`` has "added" jitter, the formula that other tools use with these variables.
    """

    max_concurrent: int | None = None
    retry: RetryPolicy | None = None
    batching: bool | None = None
    timeout: float | None = None

    def fill_in(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The ``options`` of a submission, with these for those that are missing or ``None``.

        ``batching`` applies to agents in ``evaluators`` that leave it out.
        """
        stated = {"max_concurrent": self.max_concurrent, "retry": self.retry, "timeout": self.timeout}
        filled = {name: value for name, value in stated.items() if value is not None}
        filled |= {name: value for name, value in options.items() if value is not None}
        if self.batching is not None and isinstance(evaluators := filled.get("evaluators"), list | tuple):
            filled["evaluators"] = [self._batched(each) for each in evaluators]
        return filled

    def _batched(self, evaluator: object) -> object:
        if isinstance(evaluator, Agent) and evaluator.batching is None:
            return evaluator.model_copy(update={"batching": self.batching})
        return evaluator


MOST_CONCURRENT, CONCURRENT = 50, 5
"""The largest ``MAX_CONCURRENT_LLM_CALLS`` in the profile "evaluation", and its default there."""


def evaluation_defaults(environ: Mapping[str, str], *, bounded: bool = False) -> EvaluationDefaults:
    """The defaults in ``environ``; an empty variable counts as not set.

    ``bounded``, as in the profile "evaluation": `MOST_CONCURRENT` and `CONCURRENT` hold. Raises
    `ConfigurationError` for the first variable that is wrong; of a limit below 1 its text is
    ``MAX_CONCURRENT_LLM_CALLS must be >= 1, got 0``.
    """
    given = {name: environ[name].strip() for name in NAMES if environ.get(name, "").strip()}

    def read(name: str, reader: Callable[[str, str], Value]) -> Value | None:
        return reader(name, given[name]) if name in given else None

    most = read(MAX_CONCURRENT, _count)
    if bounded and most is None:
        most = CONCURRENT
    if bounded and most is not None and most > MOST_CONCURRENT:
        remedy = _remedy(MAX_CONCURRENT, f"1 to {MOST_CONCURRENT}, or choose another defaults.profile")
        raise ConfigurationError(MAX_CONCURRENT, most, f"must be <= {MOST_CONCURRENT}", remedy)
    return EvaluationDefaults(
        max_concurrent=most,
        retry=_retry(given),
        batching=read(BATCHING, _flag),
        timeout=read(TIMEOUT, _timeout),
    )


def _retry(given: Mapping[str, str]) -> RetryPolicy | None:
    fields: dict[str, Any] = {}
    for name, field in _RETRY_FIELDS.items():
        if name in given:
            fields[field] = _count(name, given[name]) if name == MAX_ATTEMPTS else _seconds(name, given[name])
    if not fields:
        return None
    try:
        return RetryPolicy.model_validate({**fields, "jitter": "added"})
    except ValidationError as error:
        flaw = first_flaw(error)
        names = [name for name, field in _RETRY_FIELDS.items() if field == flaw.place]
        name = (names or [each for each in (MAX_DELAY, INITIAL_DELAY) if each in given])[0]
        raise ConfigurationError(name, given[name], flaw.problem, _remedy(name, "another value")) from None


def _count(name: str, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        remedy = _remedy(name, "a whole number, 1 or more")
        raise ConfigurationError(name, text, "is no whole number", remedy) from None
    if value < 1:
        raise _VariableBelowOne(name, value)
    return value


def _seconds(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= _MOST_SECONDS:
        remedy = _remedy(name, f"a number from 0 to {_MOST_SECONDS:,}, like 1.5")
        raise ConfigurationError(name, text, "is no number of seconds", remedy)
    return value


def _timeout(name: str, text: str) -> float:
    value = _seconds(name, text)
    if value == 0:
        raise ConfigurationError(name, text, "leaves a call no time", _remedy(name, "seconds, like 120"))
    return value


def _flag(name: str, text: str) -> bool:
    folded = text.casefold()
    if folded not in _YES | _NO:
        raise ConfigurationError(name, text, "is neither true nor false", _remedy(name, "true or false"))
    return folded in _YES


def _remedy(name: str, what: str) -> str:
    return f"Set {name} to {what}, or unset it."
