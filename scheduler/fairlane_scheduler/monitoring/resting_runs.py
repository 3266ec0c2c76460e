"""Which runs wait because somebody wants them to: their standstill needs nobody's attention.

``docs/constraints.md`` has all bounds of runs and all reasons of lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fairlane.model.run import RunRef
from fairlane_scheduler.state.backlog import REFUSED, ActiveRun, Backlog

OF_RUNS = frozenset(
    ("run_paused", "task_rate", "eval_rate", "delay", "budget", "team_budget", "model", REFUSED)
)
"""Bounds that a user or an operator has set, or a time that has not come. Others wait for calls to end.
A model waits for its turn for ``model_seconds`` at most."""

OF_LANES = frozenset(("paused", "parked", "held", "day"))
"""Reasons that last until an operator acts, with alerts of their own, or until a quota renews."""


def resting(backlog: Backlog, reason_of: Callable[[str], str]) -> frozenset[RunRef]:
    """Runs of which such a bound or reason delays every queued job, or that are open and wait for rows.

    ``reason_of``: why a lane granted no more permits when it was asked last. A run that has calls in flight
    may be among them.
    """
    delayed = {run.ref for run in backlog.runs() if _awaits_rows(run)}
    others = set[RunRef]()
    for ref, is_meant in _queued(backlog, reason_of):
        (delayed if is_meant else others).add(ref)
    return frozenset(delayed - others)


def _queued(backlog: Backlog, reason_of: Callable[[str], str]) -> Iterator[tuple[RunRef, bool]]:
    """Runs with queued jobs, once for each lane, and whether they are meant to wait there."""
    for name, lane in backlog.lanes():
        shut = reason_of(name) in OF_LANES
        yield from ((ref, shut or bound in OF_RUNS) for ref, bound in lane.bounds())


def _awaits_rows(run: ActiveRun) -> bool:
    """Whether its client has written all rows so far, and may write more."""
    return run.open and run.caught_up and run.plan.spec.source is None
