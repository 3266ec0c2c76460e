"""What a benchmark found, as rows that people and scripts can read."""

from __future__ import annotations

import json
import platform
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass(slots=True)
class Finding:
    """One line: what was measured, the figure, what it is held against."""

    benchmark: str
    measure: str
    value: float
    unit: str = "×"
    bar: float | None = None
    at_most: bool = True
    note: str = ""

    @property
    def met(self) -> bool | None:
        if self.bar is None:
            return None
        return self.value <= self.bar if self.at_most else self.value >= self.bar


@dataclass(slots=True)
class Report:
    """All findings of one session; ``details`` by benchmark, for those that measure more than a figure."""

    findings: list[Finding] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)

    def show(self, console: Console) -> None:
        table = Table(title="Fairlane benchmarks: ratios of one run on one machine")
        for column in ("benchmark", "measure", "value", "bar", "", "note"):
            table.add_column(column, justify="right" if column in ("value", "bar") else "left")
        for finding in self.findings:
            sign = "≤" if finding.at_most else "≥"
            table.add_row(
                finding.benchmark,
                finding.measure,
                f"{finding.value:,.3f} {finding.unit}",
                "" if finding.bar is None else f"{sign} {finding.bar:g}",
                {None: "", True: "[green]met[/]", False: "[red]missed[/]"}[finding.met],
                finding.note,
            )
        console.print(table)

    def save(self, directory: Path) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
        machine = {"python": platform.python_version(), "machine": platform.machine()}
        path.write_text(
            json.dumps(
                {"machine": machine, "findings": [asdict(f) for f in self.findings], "details": self.details},
                indent=1,
            )
        )
        return path
