"""Rows that come after their run was admitted."""

from __future__ import annotations

from fairlane.run import RunSpec
from fairlane.store.runs import Runs
from fairlane_scheduler.backlog import ActiveRun
from fairlane_scheduler.server_time import Moment

MOST_JOBS = 100_000_000  # a run's bitmap of ended jobs then takes 12 MB


def check_rows(spec: RunSpec, rows: int) -> None:
    """Raises ``ValueError`` where so many rows make more jobs than a run may have."""
    jobs = rows * spec.cells_per_row * spec.steps + spec.session_jobs
    if jobs > MOST_JOBS:
        raise ValueError(f"rows: the run has {jobs:,} jobs, at most {MOST_JOBS:,} are allowed: split it")


def extend(runs: Runs, run: ActiveRun, rows: int, moment: Moment, *, last: bool) -> None:
    """An open run has ``rows`` rows by now, and after the ``last`` no more."""
    extended = runs.extend(run.ref, run.plan, rows, moment.epoch, moment.argument, last=last)
    if extended:
        run.rows, run.open = rows, not last
    run.over = extended == 2
