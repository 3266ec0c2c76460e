"""Replaces ``mlflow.genai.evaluate``: Fairlane makes the calls, MLflow keeps the results. A program changes
one import. Predictions and Fairlane's evaluators run on workers, within the limits that all teams share;
MLflow's scorers run in this process, as in MLflow itself.
"""

from __future__ import annotations

import inspect
import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal

from fairlane.client.client import Client
from fairlane.compat.mlflow_examples import OUTPUT, Example, check_outputs, key_of, read_examples
from fairlane.config.environment import process_environment
from fairlane.core.errors import ConfigurationError, SubmissionError
from fairlane.export.extras import library
from fairlane.export.trackers.mlflow_runs import feedback
from fairlane.model.decision import RetryPolicy
from fairlane.model.evaluators import EVALUATORS
from fairlane.model.record import Record

_REMEDY = 'Define it in a module that worker.modules names, or give "<connection>:<model>".'


def evaluate(
    data: Any,
    scorers: Sequence[Any],
    predict_fn: Callable[..., Any] | str | None = None,
    model_id: str | None = None,
    *,
    client: Client | None = None,
) -> Any:
    """Evaluate as ``mlflow.genai.evaluate`` does, and return its ``EvaluationResult``.

    ``data``: dicts with ``inputs``, and ``outputs`` or ``expectations``; a pandas frame of these; an MLflow
    dataset. ``scorers``: MLflow's, and Fairlane's evaluators, whose ``expected`` names a field of the
    expectations or the inputs. ``predict_fn``: a function that workers can import, called with the inputs by
    name; or ``"<connection>:<model>"``, which is sent the inputs as a chat request. Without it, ``data`` has
    outputs. ``client`` is Fairlane's, by default one from the settings. With outputs and only MLflow's
    scorers, MLflow does all the work, whatever ``data`` is.

    The variables ``MLFLOW_GENAI_EVAL_*`` bound the calls (`fairlane.compat.mlflow`). It leaves
    out cases with a failed prediction, with a warning. Raises `SubmissionError` for arguments that it cannot
    run, `MissingExtra` without MLflow, and what MLflow raises.
    """
    mlflow = library("mlflow", "fairlane.compat.mlflow", "mlflow")
    library("mlflow.genai", "fairlane.compat.mlflow", "mlflow")
    own = [each for each in scorers if isinstance(each, EVALUATORS)]
    foreign = [each for each in scorers if not isinstance(each, EVALUATORS)]
    if predict_fn is None and not own:  # nothing for Fairlane to do
        return mlflow.genai.evaluate(data=data, scorers=foreign, model_id=model_id)
    bounds, examples = mlflow_bounds(process_environment()), read_examples(data)
    if predict_fn is None:
        check_outputs(examples)
    with nullcontext(client) if client is not None else Client() as opened:
        if predict_fn is not None:
            examples = _predicted(opened, examples, predict_fn, bounds)
        if own:
            foreign += _scored(mlflow, opened, examples, own, bounds)
    return mlflow.genai.evaluate(
        data=[example.as_data() for example in examples], scorers=foreign, model_id=model_id
    )


def _predicted(
    client: Client, examples: list[Example], predict_fn: Callable[..., Any] | str, bounds: MlflowBounds
) -> list[Example]:
    """The cases with their outputs, without those that failed."""
    options: dict[str, Any] = {"task_rate": bounds.predict_rate, "retry": bounds.retry}
    options |= {"max_concurrent": bounds.max_concurrent, "timeout": bounds.predict_timeout}
    options = {name: value for name, value in options.items() if value is not None}
    if isinstance(predict_fn, str):
        rows = [{"inputs": dict(example.inputs)} for example in examples]
        run = client.submit(rows, request="inputs", model=predict_fn, name="mlflow predict", **options)
    else:
        calls = [{"args": [], "kwargs": dict(example.inputs)} for example in examples]
        run = client.submit(calls, task=_named(predict_fn), name="mlflow predict", **options)
    read = str if isinstance(predict_fn, str) else json.loads  # what a function returns travels as JSON
    found: list[Example] = []
    failures: list[str] = []
    for example, record in zip(examples, run.results(), strict=True):
        if record.output is None:
            failures.append(record.error or str(record.state))
        else:
            found.append(replace(example, outputs=read(record.output)))
    if failures:
        words = f"{len(failures)} of {len(examples)} predictions failed and are left out: {failures[0]}"
        if not found:
            raise SubmissionError("predict_fn", predict_fn, words, "See the errors of the run's records.")
        warnings.warn(words, stacklevel=3)
    return found


def _scored(
    mlflow: Any, client: Client, examples: list[Example], own: list[Any], bounds: MlflowBounds
) -> list[Any]:
    """MLflow scorers that return the scores of Fairlane's evaluators."""
    options: dict[str, Any] = {"eval_rate": bounds.scorer_rate, "retry": bounds.retry}
    options |= {"max_concurrent": bounds.max_concurrent, "timeout": bounds.scorer_timeout}
    options = {name: value for name, value in options.items() if value is not None}
    rows = [example.row() for example in examples]
    run = client.submit(rows, output=OUTPUT, evaluators=own, name="mlflow scores", **options)
    held = {example.key: record for example, record in zip(examples, run.results(), strict=True)}
    names = dict.fromkeys(name for record in held.values() for name in record.scores)
    return [mlflow.genai.scorer(_given(mlflow, name, held), name=name) for name in names]


def _given(mlflow: Any, name: str, held: Mapping[str, Record]) -> Callable[..., Any]:
    def given(inputs: Any, outputs: Any, expectations: Any = None) -> Any:
        record = held[key_of(inputs, outputs, expectations)]
        return feedback(mlflow, name, record)

    return given


def _named(function: Callable[..., Any]) -> str:
    """The function's name for workers. Raises `SubmissionError` for one that they cannot import."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if not inspect.isroutine(function) or module in (None, "__main__") or not name.isidentifier():
        raise SubmissionError("predict_fn", function, "cannot be imported by workers", _REMEDY)
    return f"{module}:{name}"


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
