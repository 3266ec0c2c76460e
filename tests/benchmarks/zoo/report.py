"""The figures of many worlds: percentiles by player, by class and by trait, and the worst worlds by seed."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from tests.benchmarks.zoo.classes import CLASSES
from tests.benchmarks.zoo.measure import Figures, quantile

LINES = "figures.jsonl"
WORST = 20
LEAST_OF_TRAIT = 5
"""The table by trait omits traits that fewer worlds have."""

COLUMNS = ("", "worlds", "used 50 %", "used 5 %", "learner 50 %", "learner 5 %", "of learner 50 %",
           "of learner 5 %", "refused 50 %", "refused 95 %", "learner 50 %", "learner 95 %", "jobs failed",
           "jobs lost")  # fmt: skip
USED_MEDIAN, USED_LOW, REFUSED_MEDIAN, REFUSED_HIGH = 0.98, 0.90, 0.003, 0.015
"""The bars: utilisation's median and 5th percentile, the refused share's median and 95th percentile."""


def badness(figures: Figures) -> float:
    """How far a world misses the bars: lost utilisation, excess refusals times 5, and 1 for failed jobs."""
    over = max(0.0, figures.refused - REFUSED_MEDIAN)
    return (1 - figures.used) + over * 5 + (1.0 if figures.failed or figures.lost else 0.0)


def worst(all_figures: Iterable[Figures], count: int = WORST) -> list[Figures]:
    """The worst worlds, the worst first."""
    return sorted(all_figures, key=lambda figures: (-badness(figures), figures.seed))[:count]


def groups(all_figures: Sequence[Figures]) -> dict[str, list[Figures]]:
    """All figures by player, and Fairlane's by class, too."""
    found: dict[str, list[Figures]] = defaultdict(list)
    for figures in all_figures:
        found[figures.player].append(figures)
    ours = found.get("fairlane", [])
    named = {name: [figures for figures in ours if name in figures.classes] for name in CLASSES}
    return {name: group for name, group in (found | named).items() if group}


def rows(all_figures: Sequence[Figures]) -> list[tuple[str, ...]]:
    """The table's cells."""
    return [_row(name, group) for name, group in groups(all_figures).items()]


def _row(name: str, group: Sequence[Figures]) -> tuple[str, ...]:
    used, learned, of_learner = zip(*((f.used, f.learner_used, f.of_learner) for f in group), strict=True)
    refused, learner_refused = zip(*((f.refused, f.learner_refused) for f in group), strict=True)
    shares = [(values, part) for values in (used, learned, of_learner) for part in (0.5, 0.05)]
    refusals = [(values, part) for values in (refused, learner_refused) for part in (0.5, 0.95)]
    return (
        name,
        str(len(group)),
        *(f"{quantile(values, part):.3f}" for values, part in shares),
        *(f"{quantile(values, part):.2%}" for values, part in refusals),
        str(sum(f.failed for f in group)),
        str(sum(f.lost for f in group)),
    )


def table(all_figures: Sequence[Figures]) -> Table:
    """The table as a terminal shows it."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(COLUMNS):
        shown.add_column(column, justify="left" if number == 0 else "right", no_wrap=True)
    for row in rows(all_figures):
        shown.add_row(*row)
    return shown


def one_line(figures: Figures) -> str:
    """One world's figures and traits as one line."""
    return (
        f"seed {figures.seed}: used {figures.used:.3f} (second half {figures.used_late:.3f}, "
        f"learner {figures.learner_used:.3f}), refused {figures.refused:.2%} of {figures.calls} "
        f"(learner {figures.learner_refused:.2%}), failed {figures.failed}, "
        f"in outages {figures.in_outage}, {figures.horizon_s:.0f} s — {'; '.join(figures.traits)}"
    )


def trait_rows(all_figures: Sequence[Figures]) -> list[tuple[str, int, float, float, float]]:
    """For each trait: worlds, median and 5th percentile of utilisation, 95th percentile of refused shares."""
    groups: dict[str, list[Figures]] = defaultdict(list)
    for figures in all_figures:
        for kind in {_kind(trait) for trait in figures.traits}:
            groups[kind].append(figures)
    found = [
        (
            kind,
            len(group),
            quantile([f.used for f in group], 0.5),
            quantile([f.used for f in group], 0.05),
            quantile([f.refused for f in group], 0.95),
        )
        for kind, group in groups.items()
        if len(group) >= LEAST_OF_TRAIT
    ]
    return sorted(found, key=lambda row: row[2])


def _kind(trait: str) -> str:
    """A trait without its figures: ``requests 4.4 s deep`` is ``requests deep``."""
    words = trait.replace("(", "").replace(")", "").split()
    return " ".join(word for word in words if not word[0].isdigit() and word != "s")


def page(all_figures: Sequence[Figures], seeds: str) -> str:
    """A Markdown page: the table, the worst worlds with their pictures, and the table by trait."""
    lines = [f"# The zoo: {seeds}\n", _markdown(COLUMNS, rows(all_figures))]
    ours = [figures for figures in all_figures if figures.player == "fairlane"]
    lines.append(f"\n## The {WORST} worst\n")
    for figures in worst(ours):
        lines.append(f"- {one_line(figures)}\n\n  ![Course](seed-{figures.seed}.svg)\n")
    lines.append("\n## By trait\n")
    cells = [
        (kind, str(count), f"{median:.3f}", f"{low:.3f}", f"{refused:.2%}")
        for kind, count, median, low, refused in trait_rows(ours)
    ]
    lines.append(_markdown(("trait", "worlds", "used 50 %", "used 5 %", "refused 95 %"), cells))
    return "\n".join(lines) + "\n"


def _markdown(columns: Sequence[str], cells: Iterable[Sequence[str]]) -> str:
    head = [f"| {' | '.join(columns)} |", f"|---|{'---:|' * (len(columns) - 1)}"]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in cells)])


def start_lines(folder: Path) -> None:
    """Begin an empty ``figures.jsonl``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / LINES).write_text("", encoding="utf-8")


def append_lines(figures: Iterable[Figures], folder: Path) -> None:
    """Append a world's figures to ``figures.jsonl``, a line for each player."""
    with (folder / LINES).open("a", encoding="utf-8") as lines:
        lines.writelines(json.dumps(asdict(each)) + "\n" for each in figures)


def write(all_figures: Sequence[Figures], seeds: str, folder: Path) -> None:
    """Write ``results.json`` and ``README.md``; the pictures are drawn beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    results = [asdict(figures) for figures in all_figures]
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(page(all_figures, seeds), encoding="utf-8")
