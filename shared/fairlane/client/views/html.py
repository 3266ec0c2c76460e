"""Tables of HTML for notebooks. Every text is escaped; colours are those of the notebook's theme."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, TypeAlias

from fairlane.core.errors import FairlaneError

if TYPE_CHECKING:
    from fairlane.client.handle import Run
    from fairlane.client.summary import Summary
    from fairlane.client.views.comparison import Comparison
    from fairlane.client.views.lanes import LaneList
    from fairlane.model.run_status import Scores

Cell: TypeAlias = str | int | float | None

MOST_ROWS = 100
"""Rows of a table; a notebook keeps its outputs in its file."""

_STYLE = "border-collapse:collapse;font-variant-numeric:tabular-nums;margin:0.5em 0"


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """A table with a caption; numbers are at the right, with separators of thousands."""
    listed = list(rows)
    head = "".join(f'<th style="text-align:left" scope="col">{escape(name)}</th>' for name in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in listed[:MOST_ROWS])
    more = f"<p>and {len(listed) - MOST_ROWS:,} more</p>" if len(listed) > MOST_ROWS else ""
    title = f'<caption style="text-align:left;font-weight:bold">{escape(caption)}</caption>'
    return f'<table style="{_STYLE}">{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}'


def note(text: str) -> str:
    """A line below a table."""
    return f"<p>{escape(text)}</p>"


def number(value: float | None, digits: int = 3) -> str:
    """A score; a dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}"


def _cell(value: Cell) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f'<td style="text-align:left">{escape("–" if value is None else str(value))}</td>'
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
    return f'<td style="text-align:right">{text}</td>'


def run_html(run: Run) -> str:
    """A run as it stands now; its name alone where that cannot be read."""
    title = f"Run {run.id} of team {run.team}: {run.name}"
    try:
        status = run.status()
    except FairlaneError as error:
        return table(title, ["status"], [[str(error)]])
    columns = ["state", "done", "jobs", "items", "in flight", "failed", "retries"]
    row: list[Cell] = [
        str(status.state),
        f"{100 * status.progress:.0f} %",
        status.jobs,
        status.items,
        status.in_flight,
        status.failed,
        status.retries,
    ]
    return table(title, columns, [row]) + (note(status.reason) if status.reason else "")


def summary_html(summary: Summary) -> str:
    """A summary: its items, scores, failures and what it used."""
    states = ", ".join(f"{count:,} {state}" for state, count in summary.by_state.items())
    parts = [
        note(f"{summary.name} ({summary.run}): {summary.state}. {summary.items:,} items: {states or 'none'}.")
    ]
    columns = ["evaluator", "mean", "± standard error", "scored", "missing"]
    if summary.scores:
        parts.append(table("Scores", columns, [_scores(name, each) for name, each in summary.scores.items()]))
    if len(summary.scores_by_model) > 1:
        rows = [
            [model, *_scores(name, each)]
            for model, scores in summary.scores_by_model.items()
            for name, each in scores.items()
        ]
        parts.append(table("Scores by model", ["model", *columns], rows))
    if summary.session_scores:
        rows = [_scores(name, each) for name, each in summary.session_scores.items()]
        parts.append(table("Scores of sessions", columns, rows))
    if summary.failures:
        failed: list[Sequence[Cell]] = [
            [each.count, each.step, each.error, each.item] for each in summary.failures
        ]
        parts.append(table("Failures", ["items", "step", "error", "first item"], failed))
    spent = [*summary.tasks, *summary.evaluations]
    if spent:
        used: list[Sequence[Cell]] = [
            [each.model, each.calls, each.input_tokens, each.output_tokens, _dollars(each.cost_usd)]
            for each in spent
        ]
        parts.append(table("Use", ["model", "calls", "input tokens", "output tokens", "cost"], used))
    return "".join(parts)


def _scores(name: str, scores: Scores) -> list[Cell]:
    return [name, number(scores.mean), number(scores.standard_error), scores.count, scores.missing]


def _dollars(cost: float | None) -> str | None:
    return None if cost is None else f"${cost:,.4f}"


def lanes_html(lanes: LaneList) -> str:
    """Lanes, each with what limits it."""
    columns = [
        "lane",
        "state",
        "requests/min",
        "source",
        "in flight",
        "queued",
        "granted",
        "429s",
        "errors",
        "limited by",
    ]
    rows: list[Sequence[Cell]] = [
        [
            each.lane,
            each.state,
            None if each.requests_per_minute is None else f"{each.requests_per_minute:,.0f}",
            each.source,
            each.in_flight,
            each.queued,
            each.granted,
            each.rate_limits,
            each.failed,
            each.limited_by,
        ]
        for each in lanes
    ]
    return table("Lanes", columns, rows)


def comparison_html(comparison: Comparison) -> str:
    """A comparison: each evaluator's paired difference, and what is left out."""
    columns = [
        "evaluator",
        comparison.first,
        comparison.second,
        "difference",
        "± standard error",
        "better",
        "worse",
        "equal",
    ]
    rows: list[Sequence[Cell]] = [
        [
            name,
            number(each.first_mean),
            number(each.second_mean),
            number(each.mean),
            number(each.standard_error),
            each.better,
            each.worse,
            each.equal,
        ]
        for name, each in comparison.scores.items()
    ]
    title = f"{comparison.second} minus {comparison.first}"
    return table(title, columns, rows) + "".join(map(note, [comparison.matched_by, *comparison.left_out]))
