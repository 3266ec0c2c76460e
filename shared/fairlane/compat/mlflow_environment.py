"""Bounds of an evaluation from the environment variables of ``mlflow.genai.evaluate``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fairlane.core.errors import ConfigurationError
from fairlane.model.decision import RetryPolicy

PREFIX = "MLFLOW_GENAI_EVAL_"
MAX_WORKERS = f"{PREFIX}MAX_WORKERS"
PREDICT_RATE, SCORER_RATE = f"{PREFIX}PREDICT_RATE_LIMIT", f"{PREFIX}SCORER_RATE_LIMIT"
MAX_RETRIES = f"{PREFIX}MAX_RETRIES"
PREDICT_TIMEOUT, SCORER_TIMEOUT = f"{PREFIX}ASYNC_TIMEOUT", f"{PREFIX}LLM_TIMEOUT"

NAMES = (MAX_WORKERS, PREDICT_RATE, SCORER_RATE, MAX_RETRIES, PREDICT_TIMEOUT, SCORER_TIMEOUT)


@dataclass(frozen=True, slots=True)
class MlflowBounds:
    """The values of the variables; ``None``: not set, so Fairlane's default applies. Rates are starts per
    second; 0: the run sets no limit. Timeouts are in seconds.
    """

    max_concurrent: int | None = None
    predict_rate: float | Literal["auto"] = "auto"
    scorer_rate: float | Literal["auto"] = "auto"
    retry: RetryPolicy | None = None
    predict_timeout: float | None = None
    scorer_timeout: float | None = None


def mlflow_bounds(environ: Mapping[str, str]) -> MlflowBounds:
    """The bounds in ``environ``; an empty variable counts as not set. Raises `ConfigurationError`."""
    given = {name: environ[name].strip() for name in NAMES if environ.get(name, "").strip()}
    retries = _number(given, MAX_RETRIES, least=0, whole=True)
    workers = _number(given, MAX_WORKERS, least=1, whole=True)
    return MlflowBounds(
        max_concurrent=None if workers is None else int(workers),
        predict_rate=_rate(given, PREDICT_RATE),
        scorer_rate=_rate(given, SCORER_RATE),
        retry=None if retries is None else RetryPolicy(max_attempts=int(retries) + 1),
        predict_timeout=_number(given, PREDICT_TIMEOUT, least=1),
        scorer_timeout=_number(given, SCORER_TIMEOUT, least=1),
    )


def _rate(given: Mapping[str, str], name: str) -> float | Literal["auto"]:
    if given.get(name, "auto").casefold() == "auto":
        return "auto"
    return _number(given, name, least=0) or 0.0


def _number(given: Mapping[str, str], name: str, *, least: int, whole: bool = False) -> float | None:
    if name not in given:
        return None
    try:
        value = float(given[name])
    except ValueError:
        value = math.nan
    if not least <= value < math.inf or (whole and not value.is_integer()):
        kind = "a whole number" if whole else "a number"
        raise ConfigurationError(
            name, given[name], f"is not {kind} from {least} on", f"Correct or unset {name}."
        )
    return value
