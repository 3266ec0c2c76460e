"""A run's configuration as rows of a table, and its failures without quoted texts."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from fairlane.client.views.summary import TASK, Failure
from fairlane.model.decision import RetryPolicy
from fairlane.model.run import Bounds, CacheChoice, Order, RunSpec

LONG_QUOTE = 40
"""Most characters of a quote in a task's error: a longer one may come from a prompt or an output."""

_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|“[^”]*”", re.DOTALL)
_NO_TEXT = frozenset(
    {
        *("batching", "choices", "expected", "field", "function", "ignore_case"),
        *("lane", "level", "required", "strip", "tolerance", "when"),
    }
)
"""Fields of evaluators that name things; the others are, or may hold, text of prompts."""


class EvaluatorLine(NamedTuple):
    """An evaluator: its name, kind and model, and its options except prompts."""

    name: str
    kind: str
    model: str
    options: str


def configuration_of(spec: RunSpec, *, texts: bool) -> Iterator[tuple[str, str]]:
    """The run's options by name; defaults are left out.

    Parameters that are long, or lists of texts, are shown only with ``texts``.
    """
    yield "rows", f"{spec.rows:,}" + (f" from {spec.source.url}" if spec.source else "")
    if spec.calls_tasks:
        yield "models", ", ".join(spec.models)
        if spec.prompts:
            yield "prompts", f"{len(spec.prompts):,}"
    else:
        yield "outputs", f"given, in the field {spec.output_field}"
    if spec.request_field is not None:
        yield "requests", f"whole, in the field {spec.request_field}"
    if spec.repetitions > 1:
        yield "repetitions", f"{spec.repetitions:,}"
    if spec.params:
        yield "parameters", ", ".join(_parameter(name, value, texts) for name, value in spec.params.items())
    yield "timeout", f"{spec.timeout:g} s"
    if spec.interactive or spec.priority:
        yield "priority", "interactive" if spec.interactive else f"{spec.priority}"
    for name, value, usual in (
        ("bounds", spec.bounds, Bounds()),
        ("order", spec.order.model_copy(update={"turn_fields": Order().turn_fields}), Order()),
        ("cache", spec.cache, CacheChoice()),
        ("retries", spec.retry, RetryPolicy()),
    ):
        if value != usual:
            yield name, _differing(value.model_dump(), usual.model_dump())
    if spec.lane is not None:
        yield "lane", spec.lane
    if spec.session_field is not None:
        yield "sessions", f"{spec.sessions:,}, by the field {spec.session_field}"
    if spec.continues is not None:
        yield "goes on from", spec.continues.run


def evaluators_of(spec: RunSpec, *, texts: bool) -> list[EvaluatorLine]:
    """The run's evaluators; with ``texts`` also their prompts."""
    return [
        EvaluatorLine(
            each.name, each.kind.replace("_", " "), str(getattr(each, "model", "") or ""), _rest(each, texts)
        )
        for each in spec.evaluators
    ]


def failures_of(failures: Iterable[Failure], *, texts: bool) -> list[Failure]:
    """The failures, most frequent first; without ``texts``, quotes in errors are left out."""
    if texts:
        return list(failures)
    counted: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], int] = {}
    for each in failures:
        key = each.step, without_quotes(each.step, each.error)
        counted[key] += each.count
        first[key] = min(each.item, first.get(key, each.item))
    return [Failure(*key, count, first[key]) for key, count in counted.most_common()]


def without_quotes(step: str, error: str) -> str:
    """The error without quotes that may hold output: all of an evaluator's, and long ones of a provider."""
    least = LONG_QUOTE if step == TASK else 0
    return _QUOTED.sub(lambda found: found.group() if 2 < len(found.group()) <= least else "“…”", error)


def _differing(values: dict[str, Any], usual: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items() if value != usual.get(name))


def _rest(evaluator: Any, texts: bool) -> str:
    values = evaluator.model_dump(exclude_defaults=True, mode="json")
    shown = {
        name: value for name, value in values.items() if name not in ("name", "kind", "model", "criteria")
    }
    kept = {name: value for name, value in shown.items() if texts or name in _NO_TEXT}
    if criteria := values.get("criteria"):
        kept["criteria"] = ", ".join(each["id"] for each in criteria)
    return "; ".join(f"{name}: {_plain(value)}" for name, value in kept.items())


def _parameter(name: str, value: Any, texts: bool) -> str:
    short = isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) <= LONG_QUOTE)
    return f"{name} {_plain(value) if short or texts else '…'}"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
