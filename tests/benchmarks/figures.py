"""The table of figures in a page: one row a figure, each with the day on which it was measured."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

from tests.benchmarks.report import Finding
from tests.benchmarks.scale.page import markdown, rewrite

HEAD = ("benchmark", "figure", "median", "least to most", "bar", "measured")


def write_figures(
    page: Path, found: Mapping[str, Sequence[Finding]], order: Iterable[str], day: str, rounds: int
) -> None:
    """Replace the rows of each benchmark in ``found``, and keep those of the others.

    ``found`` has the findings of all ``rounds`` by the benchmark's name; ``day`` is YYYY-MM-DD.
    """
    place = re.search(r"<!-- figures -->(.*)<!-- /figures -->", page.read_text(encoding="utf-8"), re.DOTALL)
    rows: dict[str, list[tuple[str, ...]]] = {}
    for line in place[1].splitlines() if place else ():
        row = tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])
        if row:
            rows.setdefault(row[0], []).append(row)
    for name, findings in found.items():
        rows[name] = _rows(name, findings, f"{day}, {rounds}×")
    rewrite(page, {"figures": markdown(HEAD, [row for name in order for row in rows.get(name, ())])})


def _rows(name: str, findings: Sequence[Finding], measured: str) -> list[tuple[str, ...]]:
    """One row a figure, in the order in which the first round found them."""
    by_figure: dict[str, list[Finding]] = {}
    for finding in findings:
        by_figure.setdefault(finding.measure, []).append(finding)
    return [_row(name, figure, each, measured) for figure, each in by_figure.items()]


def _row(name: str, figure: str, found: Sequence[Finding], measured: str) -> tuple[str, ...]:
    values, one = [finding.value for finding in found], found[0]
    middle = median(values)
    spread = f"{figure_text(min(values), one.unit)} to {figure_text(max(values), one.unit)}"
    bar = ""
    if one.bar is not None:
        met = middle <= one.bar if one.at_most else middle >= one.bar
        bar = f"{'≤' if one.at_most else '≥'} {one.bar:,.7g}{'' if met else ', **missed**'}"
    shown = figure_text(middle, one.unit) + ("" if one.unit == "×" else f" {one.unit}")
    figure, spread = figure.replace("|", "\\|"), spread if len(values) > 1 else ""
    return name, figure, shown, spread, bar, measured


def figure_text(value: float, unit: str) -> str:
    """A ratio with three decimals, a whole number as it is, all else with three digits."""
    if unit == "×":
        return f"{value:.3f}"
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
