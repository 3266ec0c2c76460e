"""Processes that a test may have left behind."""

from __future__ import annotations

from pathlib import Path

from fairlane.embedded.reaper import is_running


def processes_below(folder: Path) -> set[int]:
    """Running processes that work in ``folder`` or below it."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            works_there = entry.name.isdigit() and (entry / "cwd").readlink().is_relative_to(folder)
        except OSError:
            continue
        if works_there and is_running(int(entry.name)):
            found.add(int(entry.name))
    return found
