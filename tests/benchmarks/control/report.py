"""The figures of many rehearsals, as a table, a page and JSON."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from rich.table import Table
from rich.text import Text

from tests.benchmarks.control.catalogue import CATALOGUE, MINUTES
from tests.benchmarks.control.figures import Figures, LaneFigures

COLUMNS = ("scenario", "workers", "used", "429s", "cuts", "recovered after", "fairness", "took", "bar")

INTRODUCTION = """\
# How a lane detects its limit

How much of a provider's limit does a lane use if nobody configures it? Each scenario plays an hour of one
lane in virtual time: the real scheduler and the real scripts, simulated workers, and a simulated provider.

`make simulate` writes this page, `results.json` and the pictures again; the same seed gives the same numbers.

| column | meaning |
|---|---|
| used | share of the limit that the lane used after the warm-up |
| 429s | share of calls that got a 429 |
| cuts | how often the lane lowered its rate after a 429, on average |
| recovered after | time from a change of the limit until the rate stays near the new one; — if it does not |
| fairness | Jain's index of the teams' rates over 10 s |
| took | time of the run |
| bar | 95 % used and 1 % 429s; with limit headers 99 % and 0.1 % |

Of several seeds, the table shows the worst.
"""


@dataclass(frozen=True, slots=True)
class _Row:
    scenario: str
    cells: tuple[str, ...]
    met: bool | None


def in_order(measures: Sequence[Figures]) -> list[Figures]:
    """By the catalogue, then by workers and seed."""
    places = {name: place for place, name in enumerate(CATALOGUE)}
    return sorted(measures, key=lambda m: (places.get(m.scenario, len(places)), m.workers, m.seed))


def table(measures: Sequence[Figures]) -> Table:
    """For a terminal."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(COLUMNS):
        shown.add_column(column, justify="left" if number == 0 else "right", no_wrap=True)
    for row in _rows(measures):
        style = {True: "green", False: "red", None: ""}[row.met]
        shown.add_row(*row.cells[:-1], Text(row.cells[-1], style))
    return shown


def write(
    measures: Sequence[Figures], minutes: float, seeds: int, pictures: Sequence[str], folder: Path
) -> None:
    """``results.json`` and ``README.md``; ``pictures`` are the files in the folder that it shows."""
    folder.mkdir(parents=True, exist_ok=True)
    ordered = in_order(measures)
    document = {"minutes": minutes, "seeds": seeds, "results": [m.model_dump(mode="json") for m in ordered]}
    (folder / "results.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(_page(ordered, minutes, seeds, pictures), encoding="utf-8")


def _page(measures: Sequence[Figures], minutes: float, seeds: int, pictures: Sequence[str]) -> str:
    lines = [INTRODUCTION]
    lines.append(
        f"Measured over {minutes:g} minutes (usually {MINUTES:g}), {seeds} seed{'s' * (seeds > 1)} each.\n"
    )
    lines.append(f"| {' | '.join(COLUMNS)} |")
    lines.append(f"|---|{'---:|' * (len(COLUMNS) - 1)}")
    lines += [f"| {' | '.join(row.cells)} |" for row in _rows(measures)]
    shown = {m.scenario: CATALOGUE[m.scenario](minutes).about for m in measures if m.scenario in CATALOGUE}
    for name, about in shown.items():
        lines.append(f"\n## {name}\n\n{about}")
        if f"{name}.png" in pictures:
            lines.append(f"\n![Admitted and allowed calls a minute]({name}.png)")
    return "\n".join(lines) + "\n"


def _rows(measures: Sequence[Figures]) -> list[_Row]:
    groups: dict[tuple[str, int], list[Figures]] = {}
    for each in in_order(measures):
        groups.setdefault((each.scenario, each.workers), []).append(each)
    return [_row(name, workers, group) for (name, workers), group in groups.items()]


def _row(name: str, workers: int, group: Sequence[Figures]) -> _Row:
    lanes = [lane for each in group for lane in each.lanes]
    used = [lane.utilisation for lane in lanes if lane.utilisation is not None]
    fair = [lane.fairness for lane in lanes if lane.fairness is not None]
    judged = [each.meets_bar for each in group if each.meets_bar is not None]
    met = all(judged) if judged else None
    cells = (
        name,
        str(workers),
        f"{min(used):.1%}" if used else "",
        f"{max(lane.rejected_share for lane in lanes):.2%}",
        f"{fmean(lane.cuts for lane in lanes):.0f}",
        _recovered_after(lanes),
        f"{min(fair):.3f}" if fair else "",
        f"{max(each.duration_s for each in group) / 60:.1f} min",
        {True: "met", False: "missed", None: ""}[met],
    )
    return _Row(name, cells, met)


def _recovered_after(lanes: Sequence[LaneFigures]) -> str:
    """The slowest recovery from each change, in order."""
    by_change = zip(*(lane.recoveries for lane in lanes), strict=True)
    slowest = []
    for recoveries in by_change:
        times = [recovery.took_s for recovery in recoveries]
        known = [took for took in times if took is not None]
        slowest.append(f"{max(known):.0f} s" if len(known) == len(times) else "—")
    return ", ".join(slowest)
