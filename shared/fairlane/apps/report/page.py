"""Builds a report: the contents of each part, and the page."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from os import PathLike
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from fairlane.apps.report import charts, words
from fairlane.apps.report.activity import LaneActivity
from fairlane.apps.report.binning import QUANTILES, bins_of, quantile
from fairlane.apps.report.charts import Mark
from fairlane.apps.report.description import configuration_of, evaluators_of, failures_of
from fairlane.apps.report.gathering import CellSums, Gathering
from fairlane.client.views.comparison import Comparison
from fairlane.client.views.summary import Summary
from fairlane.client.views.tally import summarise
from fairlane.core.figures import counted, dollars, figure, latency, short, took
from fairlane.core.paths import at_home
from fairlane.core.terminal_text import visible
from fairlane.core.version import __version__
from fairlane.export.files import whole_file
from fairlane.model.job import JobState
from fairlane.model.record import Record
from fairlane.model.run import RunSpec, RunState
from fairlane.model.run_status import RunStatus, Scores
from fairlane.model.sessions import SessionRecord
from fairlane.model.tokens import Price, cost_usd, price_of

MOST_EXAMPLES = 200
MOST_ROWS = 50
FAILURES_SHOWN = 50
_ENDINGS = {
    "cut": "at max_tokens",
    "empty": "without a text, cut ones included",
    "refused": "the model's own words of refusal are the output",
}


@dataclass(frozen=True, slots=True)
class ReportSource:
    """The data of a report. ``records`` and ``sessions`` are read once; times are server milliseconds."""

    spec: RunSpec
    status: RunStatus
    records: Iterable[Record]
    sessions: Iterable[SessionRecord]
    prices: Mapping[str, Price]
    activity: Sequence[LaneActivity]
    now_ms: int
    comparison: Comparison | None = None


class Figure(NamedTuple):
    """A large number and the text below it."""

    name: str
    value: str
    note: str = ""


class Drawn(NamedTuple):
    """A chart with its title, and its numbers for screen readers."""

    title: str
    svg: Markup
    facts: Sequence[tuple[str, str]]


def write_report(path: str | PathLike[str], source: ReportSource, examples: int = 0) -> int:
    """Write the complete page or no file; return the number of records in it. Raises ``OSError``.

    Texts of prompts, rows and outputs are in it only with ``examples``, and only of so many items.
    """
    with whole_file(at_home(Path(path))) as out:
        gathering = Gathering(
            examples=max(0, min(examples, MOST_EXAMPLES)), items_per_row=source.spec.cells_per_row
        )
        passing = gathering.passing(source.records)
        summary = summarise(source.spec, source.status.state, passing, source.prices, source.sessions)
        out.write(_template().render(_contents(source, summary, gathering)))
    return summary.items


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("fairlane.apps.report"),
        autoescape=True,
        finalize=_made_visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    named = (figure, words.change, words.error, words.percent, words.moment, words.clipped, dollars)
    for each in named:
        environment.filters[each.__name__] = each
    return environment.get_template("report.html.j2")


def _made_visible(value: object) -> object:
    """A template's value without hidden characters: those in a team's text may hide or reorder others."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _contents(source: ReportSource, summary: Summary, gathering: Gathering) -> dict[str, Any]:
    texts = gathering.examples > 0
    failures = failures_of(summary.failures, texts=texts)
    return {
        "source": source,
        "spec": source.spec,
        "summary": summary,
        "good": summary.state is RunState.COMPLETED,
        "version": __version__,
        "states": [(state, count) for state, count in Counter(summary.by_state).most_common() if count],
        "figures": list(_figures(source, summary, gathering)),
        "scores": [
            _score_chart(name, scores, gathering.scores.get(name, ()))
            for name, scores in summary.scores.items()
        ],
        "cells": _compared(gathering, source.prices),
        "cell_scores": [name for name, scores in summary.scores.items() if scores.count],
        "more_cells": gathering.more_cells or len(gathering.cells) > MOST_ROWS,
        "lanes": [_lane_chart(each) for each in source.activity],
        "times": list(_times(source.status)),
        "latency": _latency_chart(gathering),
        "tokens": _tokens_chart(gathering),
        "failures": failures[:FAILURES_SHOWN],
        "more_failures": len(failures) - FAILURES_SHOWN,
        "configuration": list(configuration_of(source.spec, texts=texts)),
        "evaluators": evaluators_of(source.spec, texts=texts),
        "prompts": source.spec.prompts if texts else (),
        "examples": gathering.chosen(),
    }


def _figures(source: ReportSource, summary: Summary, gathering: Gathering) -> Iterator[Figure]:
    status = source.status
    succeeded = summary.by_state.get(JobState.SUCCEEDED, 0)
    cached = f", {summary.cached:,} from the cache" if summary.cached else ""
    yield Figure(
        "items", f"{summary.items:,}", f"{words.percent(succeeded, summary.items)} succeeded{cached}"
    )
    for kind, note in _ENDINGS.items():
        if count := sum(getattr(each, kind) for each in summary.endings.values()):
            yield Figure(f"outputs {kind}", f"{count:,}", note)
    for name, scores in list(summary.scores.items())[:4]:
        if scores.mean is not None:
            error = "" if scores.standard_error is None else f"± {words.error(scores.standard_error)} s.e., "
            yield Figure(name, figure(scores.mean), f"{error}n = {scores.of_rows}")
    tokens = summary.task_tokens + summary.evaluation_tokens
    if tokens:
        of_evaluations = words.percent(summary.evaluation_tokens, tokens)
        yield Figure("tokens", short(tokens), f"{of_evaluations} by evaluations")
    if summary.cost_usd is not None:
        waste = f"of which not kept: {summary.waste}" if summary.waste else ""
        notes = "; ".join(filter(None, (summary.gaps, waste)))
        yield Figure("cost", dollars(summary.cost_usd), notes or "by the price table")
    if status.started_ms is not None and status.finished_ms is not None:
        took_ms = max(1, status.finished_ms - status.started_ms)
        pace = status.jobs_done / took_ms * 1000
        yield Figure("duration", took(took_ms), f"{figure(pace, 3)} jobs a second")
    if gathering.latencies_ms:
        ordered = sorted(gathering.latencies_ms)
        tail = f"95 % within {latency(quantile(ordered, 0.95))}"
        yield Figure("latency", latency(quantile(ordered, 0.5)), f"median; {tail}")
    yield Figure("answers of 429", f"{status.rate_limits:,}", counted(status.retries, "retry", "retries"))


def _score_chart(name: str, scores: Scores, values: Sequence[float]) -> Drawn:
    facts = [("scored", scores.of_rows), ("missing", f"{scores.missing:,}")]
    if scores.mean is not None:
        facts.append(("mean", figure(scores.mean)))
    if scores.standard_error is not None:
        facts.append(("± s.e.", words.error(scores.standard_error)))
    if values:
        facts += [("median", figure(quantile(sorted(values), 0.5)))]
        facts += [("least", figure(min(values))), ("greatest", figure(max(values)))]
    marks = [] if scores.mean is None else [Mark(scores.mean, f"mean {figure(scores.mean)}")]
    return Drawn(name, charts.histogram(bins_of(values), f"Scores of {name}", _tick, marks), facts)


def _tick(value: float) -> str:
    return figure(value, 3)


def _times(status: RunStatus) -> Iterator[tuple[str, str, str, str]]:
    """For tasks and evaluations: how many calls, and their mean times of waiting and of calling."""
    for role, time in (("tasks", status.predict), ("evaluations", status.score)):
        if time is not None and time.calls:
            waiting, calling = (
                latency(each * 1000 / time.calls) for each in (time.waiting_s, time.calling_s)
            )
            yield role, f"{time.calls:,}", waiting, calling


def _latency_chart(gathering: Gathering) -> Drawn | None:
    ordered = sorted(gathering.latencies_ms)
    if not ordered:
        return None
    facts = [(f"{100 * share:.0f} %", latency(quantile(ordered, share))) for share in QUANTILES]
    facts += [("mean", latency(fmean(ordered))), ("longest", latency(ordered[-1]))]
    marks = [Mark(quantile(ordered, share), f"p{100 * share:.0f}") for share in (0.5, 0.95)]
    bins = bins_of(ordered, logarithmic=True)
    return Drawn("Latency of tasks", charts.histogram(bins, "Latency of tasks", latency, marks), facts)


def _tokens_chart(gathering: Gathering) -> Drawn | None:
    ordered = sorted(gathering.output_tokens)
    if not ordered:
        return None
    facts = [("median", figure(quantile(ordered, 0.5))), ("mean", figure(fmean(ordered)))]
    facts += [("95 %", figure(quantile(ordered, 0.95))), ("most", figure(ordered[-1]))]
    chart = charts.histogram(bins_of(ordered), "Output tokens of tasks", lambda value: f"{value:,.0f}")
    return Drawn("Output tokens of tasks", chart, facts)


def _lane_chart(activity: LaneActivity) -> Drawn:
    points = activity.points
    limits = [point.limit for point in points if point.limit is not None]
    facts = [("most calls a minute", f"{max(point.admitted for point in points):,.0f}")]
    facts.append(("limit at the end", f"{limits[-1]:,.0f} a minute" if limits else "none known"))
    facts.append(("429s", f"{activity.refused:,} of about {counted(activity.finished, 'call')}"))
    return Drawn(activity.lane, charts.throughput(activity, words.clock), facts)


def _compared(gathering: Gathering, prices: Mapping[str, Price]) -> list[dict[str, Any]]:
    cells = sorted(gathering.cells.values(), key=lambda each: (each.model, each.prompt))[:MOST_ROWS]
    scales = {
        name: (min([0.0, *values]), max([1.0, *values]))
        for name, values in gathering.scores.items()
        if values
    }
    return [_cell(gathering, each, scales, prices) for each in cells]


def _cell(
    gathering: Gathering,
    cell: CellSums,
    scales: Mapping[str, tuple[float, float]],
    prices: Mapping[str, Price],
) -> dict[str, Any]:
    ordered = sorted(cell.latencies_ms)
    scores: dict[str, Any] = {}
    for name, (least, most) in scales.items():
        found = gathering.mean(cell, name)
        if found is not None:
            mean, error = found
            share = (mean / 2 - least / 2) / (most / 2 - least / 2)  # halves are finite
            scores[name] = {"mean": mean, "error": error, "percent": round(100 * share, 1)}
    return {
        "model": cell.model,
        "prompt": cell.prompt + 1,
        "items": cell.items,
        "succeeded": cell.succeeded,
        "tokens": "–" if cell.usage.total is None else f"{cell.usage.total:,}",
        "latency": latency(quantile(ordered, 0.5)) if ordered else "–",
        "scores": scores,
        "cost": dollars(_cost(cell, prices)),
    }


def _cost(cell: CellSums, prices: Mapping[str, Price]) -> float | None:
    price = price_of(cell.model, prices)
    return None if price is None or cell.usage.total is None else cost_usd(cell.usage, price)
