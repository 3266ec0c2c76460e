"""``fairlane estimate``: estimates a run without submitting it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from fairlane.cli.invocation import Invocation, JsonOption, with_settings
from fairlane.cli.output import emit, print_fields, print_line, print_table, say
from fairlane.cli.runs.submitting.assignments import read_options
from fairlane.cli.runs.submitting.inputs import LimitOption, TaskOptions, open_dataset, portion_of
from fairlane.cli.runs.submitting.options import EvaluatorOptions, MaxConcurrentOption
from fairlane.cli.runs.submitting.submit import MoreOption
from fairlane.client.client import Client, Dataset
from fairlane.client.views.forecast import Forecast, LaneForecast
from fairlane.core.figures import counted, dollars, took
from fairlane.datasets.rows import read_rows
from fairlane.why.reasons import SHORT_WORDS

app = typer.Typer()

LONGEST = "the longest that the parameters allow"
_LIMITS = SHORT_WORDS | {"places": "calls at once", "gap": "gap between calls"}


@dataclass(frozen=True, slots=True)
class Expected:
    """Options: what the caller knows about the dataset and the answers."""

    rows: Annotated[int | None, typer.Option(min=1, metavar="N")] = None
    """How many rows there are: then only the first ones are read."""

    answer_tokens: Annotated[int | None, typer.Option(min=1, metavar="N", show_default=LONGEST)] = None
    """Expected tokens of an answer."""


@app.command()
@with_settings
def estimate(
    invocation: Invocation,
    *,
    dataset: Annotated[str, typer.Argument(metavar="FILE", help="Rows, as for submit.")],
    limit: LimitOption = None,
    task_options: TaskOptions,
    evaluator_options: EvaluatorOptions,
    max_concurrent: MaxConcurrentOption = None,
    option: MoreOption = None,
    expected: Expected,
    as_json: JsonOption = False,
) -> None:
    """Estimate a run's calls, tokens, cost and time, from a sample of rows and the lanes' state.

    Takes what submit takes, and submits nothing. The prices in the settings give the cost.
    """
    calls, evaluators = (
        task_options.submit_arguments(read_options(option or ())),
        evaluator_options.evaluators(),
    )
    with invocation.deployment() as deployment:
        forecast = Client.over(deployment).estimate(
            _Rows(portion_of(open_dataset(dataset), limit)),
            rows=min(filter(None, (expected.rows, limit))) if expected.rows else None,
            answer_tokens=expected.answer_tokens,
            evaluators=evaluators,
            max_concurrent=max_concurrent,
            **calls,
        )
    bound = " at most" if expected.answer_tokens is None else ""
    emit(forecast.to_dict(), lambda: print_forecast(forecast, bound), as_json=as_json)


class _Rows:
    """Rows that only the estimate reads, so that they may come from a pipe."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return read_rows(self._dataset)


def print_forecast(forecast: Forecast, bound: str) -> None:
    """The run as a whole, its models and its lanes; what the numbers leave out goes to standard error.

    ``bound``: words behind sums that are upper bounds.
    """
    print_fields(_fields(forecast, bound))
    print_line("")
    print_table(
        ["model", ">calls", ">input", ">output", ">cost"],
        (
            (
                each.model,
                f"{each.calls:,}",
                f"{each.input_tokens:,}",
                f"{each.output_tokens:,}",
                dollars(each.cost_usd),
            )
            for each in forecast.models
        ),
    )
    if forecast.lanes:
        print_line("")
        print_table(["lane", ">calls", ">time", "limited by"], map(_lane, forecast.lanes))
    for note in forecast.notes:
        say(note)


def _fields(forecast: Forecast, bound: str) -> Iterator[tuple[str, object]]:
    rendered = counted(forecast.sampled, "item")
    yield "items", f"{forecast.items:,} of {counted(forecast.rows, 'row')}; {rendered} rendered"
    if forecast.invalid:
        yield "invalid", f"about {forecast.invalid:,}"
    evaluations = counted(forecast.evaluations, "evaluation")
    yield "calls", f"{forecast.calls:,}: {counted(forecast.tasks, 'task')}, {evaluations}"
    yield "tokens", f"{forecast.tokens:,}{bound}"
    missing = f", without {', '.join(forecast.unpriced)}" if forecast.unpriced else ""
    yield "cost", dollars(forecast.cost_usd) + (bound + missing if forecast.cost_usd is not None else "")
    yield "time", _duration(forecast.seconds)


def _lane(lane: LaneForecast) -> tuple[object, ...]:
    by = _LIMITS[lane.limited_by] if lane.limited_by else "–"
    source = f", {lane.source}" if lane.source else ""
    return lane.lane, f"{lane.calls:,}", _duration(lane.seconds), f"{by}{source}"


def _duration(seconds: float | None) -> str:
    return "not known" if seconds is None else took(seconds * 1000)
