"""The latest runs of all teams, with what is known of each: cheap to read again."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Any

from fairlane.dashboard.deployment import Deployment
from fairlane.dashboard.tallies import Sums, Tallies
from fairlane.dashboard.wording import error_shown
from fairlane.errors import RunNotFound
from fairlane.job import JobState
from fairlane.progress import Rate
from fairlane.run import RunSpec, RunStatus
from fairlane.store.keys import RunRef

LISTED = 100
KNOWN = 2 * LISTED
SUMMED_AT_ONCE = 1_000
"""Items that one look at the list takes into sums, over all its runs."""


class RunList:
    """Reads runs. What it returns is ready for JSON; times are server milliseconds. Threads may share it."""

    def __init__(self, deployment: Deployment, tallies: Tallies, *, show_text: bool) -> None:
        self._deployment, self._tallies, self._lock = deployment, tallies, Lock()
        self._show_text = show_text
        self._known: OrderedDict[RunRef, tuple[RunStatus, RunSpec | None]] = OrderedDict()
        self._rates: dict[RunRef, Rate] = {}

    def all(self) -> dict[str, Any]:
        """The newest runs that Redis knows, in a line each."""
        reader = self._deployment.reader
        refs = reader.newest_runs(reader.teams(), LISTED)
        now_ms, rows, left = self._deployment.now_ms(), list[dict[str, Any]](), SUMMED_AT_ONCE
        for ref in refs:
            try:
                status, spec = self.look(ref)
            except RunNotFound:
                continue
            sums = self._tallies.advance(ref, spec, status.state, left) if spec is not None else None
            left -= sums.added if sums else 0
            rows.append(self.row(status, sums, now_ms))
        return {"now_ms": now_ms, "runs": rows}

    def look(self, ref: RunRef) -> tuple[RunStatus, RunSpec | None]:
        """How a run stands, and its spec where that can be read; one that is over, as it was seen last.

        Raises `RunNotFound`.
        """
        with self._lock:
            known = self._known.get(ref)
        if known is not None and known[0].state.finished:
            return known
        runs = self._deployment.link.runs
        if known is None or known[1] is None:
            found: tuple[RunStatus, RunSpec | None] = runs.overview(ref)
        else:
            found = runs.status(ref, known[1]), known[1]
        with self._lock:
            self._known[ref] = found
            self._known.move_to_end(ref)
            while len(self._known) > KNOWN:
                gone, _ = self._known.popitem(last=False)
                self._rates.pop(gone, None)
        return found

    def row(self, status: RunStatus, sums: Sums | None, now_ms: int) -> dict[str, Any]:
        """A run in a line."""
        return {
            "team": status.team,
            "run": status.run,
            "name": status.name,
            "state": "paused" if status.paused is not None else str(status.state),
            "over": status.state.finished,
            "paused_by": status.paused.by if status.paused else None,
            "progress": status.progress,
            "items": status.items,
            "items_done": status.items_done,
            "jobs": status.jobs,
            "jobs_done": status.jobs_done,
            "in_flight": status.in_flight,
            "failed": status.by_state.get(JobState.FAILED, 0) + status.by_state.get(JobState.INVALID, 0),
            "eta_ms": self._eta(status, now_ms),
            "scores": _scores(sums),
            "cost_usd": sums.summary.cost_usd if sums else None,
            "summed": sums.items if sums else 0,
            "submitted_ms": status.submitted_ms,
            "started_ms": status.started_ms,
            "finished_ms": status.finished_ms,
            "reason": error_shown(status.reason, show_text=self._show_text) if status.reason else None,
        }

    def _eta(self, status: RunStatus, now_ms: int) -> int | None:
        """By how fast its jobs end now, or have since it began where that is not known yet."""
        if status.state.finished or status.paused is not None or status.started_ms is None:
            return None
        with self._lock:
            rate = self._rates.setdefault(RunRef(status.team, status.run), Rate())
            rate.count(now_ms, status.jobs_done)
            per_second = rate.per_second
        if not per_second:
            per_second = status.jobs_done * 1000 / max(1, now_ms - status.started_ms)
        left = status.jobs - status.jobs_done
        return now_ms + round(left / per_second * 1000) if per_second else None


def _scores(sums: Sums | None) -> list[dict[str, Any]]:
    """Each evaluator's mean over the items so far, with its standard error."""
    return [
        {
            "name": name,
            "mean": score.mean,
            "standard_error": score.standard_error,
            "count": score.count,
            "missing": score.missing,
            "minimum": score.minimum,
            "maximum": score.maximum,
        }
        for name, score in (sums.summary.scores.items() if sums else ())
    ]
