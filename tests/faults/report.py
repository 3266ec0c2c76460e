"""What a session of schedules found: a line for each schedule, and tables in the end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.faults.checker import Violation
from tests.faults.history import LOST, History


@dataclass(slots=True)
class Tally:
    """Counts over all schedules that were played."""

    schedules: int = 0
    calls: int = 0
    paid_again: int = 0
    unplayed: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    schedules_with: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    settled_s: list[float] = field(default_factory=list)

    def add(self, history: History, violations: Sequence[Violation]) -> None:
        """Count one schedule."""
        paid = Counter((call.model, call.question) for call in history.calls if call.paid)
        self.schedules += 1
        self.calls += len(history.calls)
        self.paid_again += sum(count - 1 for count in paid.values())
        self.unplayed += len(history.unplayed)
        names = [span.name for span in history.faults]
        self.faults.update(names)
        self.schedules_with.update(set(names))
        self.broken.update({violation.check for violation in violations})
        self.settled_s.append(max(0.0, history.took_s - history.last_fault_s))


def show(console: Console, history: History, violations: Sequence[Violation]) -> None:
    """One schedule: its line, which ``--schedule`` takes, and what it broke."""
    verdict = "[red]broken[/red]" if violations else "[green]held[/green]"
    stalled = f", stalled {history.stalled_s:.1f} s" if history.stalled_s > 1.0 else ""
    lost = "".join(
        f", {run.name} is lost ({(run.error or '').partition(':')[0]})"
        for run in history.runs
        if run.state == LOST
    )
    console.print(
        f"{verdict} {history.took_s:.0f} s, {len(history.calls)} calls{stalled}{lost}: {history.schedule}",
        soft_wrap=True,
        highlight=False,
    )
    for text in history.unplayed:
        console.print(f"  [yellow]not played[/yellow] {_both_ends(text)}", soft_wrap=True, highlight=False)
    for violation in violations:
        console.print(f"  [red]{violation.check}[/red] {violation.text}", soft_wrap=True, highlight=False)


def _both_ends(text: str) -> str:
    """A fault's error, without the middle of a long one: a quoted log says why at its end."""
    return text if len(text) <= 1000 else f"{text[:200]} … {text[-800:]}"


def summary(tally: Tally) -> Table:
    """What was played, by fault."""
    table = Table(title=f"{tally.schedules} schedules, {tally.calls:,} calls, {tally.paid_again} paid again")
    table.add_column("fault")
    table.add_column("played", justify="right")
    table.add_column("in schedules", justify="right")
    for name, count in sorted(tally.faults.items()):
        table.add_row(name, str(count), str(tally.schedules_with[name]))
    settled = max(tally.settled_s, default=0.0)
    broken = ", ".join(f"{name} in {count}" for name, count in tally.broken.items()) or "none"
    table.caption = f"longest until done after the last fault: {settled:.0f} s; violations: {broken}"
    return table


def keep(folder: Path, history: History, violations: Sequence[Violation]) -> Path:
    """Write a broken history into a file, for whoever looks into it."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"seed-{history.schedule.seed}-{len(list(folder.iterdir()))}.json"
    story = {
        "schedule": str(history.schedule),
        "violations": [str(violation) for violation in violations],
        "faults": [str(span) for span in history.faults],
        "runs": [str(run) for run in history.runs],
        "calls": [str(call) for call in sorted(history.calls, key=lambda call: call.arrived)],
        "left": dict(history.left),
        "died": history.died,
        "logs": [dict(line) for line in history.logs],
    }
    file.write_text(json.dumps(story, indent=1, default=str), encoding="utf-8")
    return file
