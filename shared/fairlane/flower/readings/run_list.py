"""Reads the latest runs of all teams for their page; a finished run is read once."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from threading import Lock
from typing import Any

from fairlane.cli.runs.run_views import run_document, state_in_a_word
from fairlane.client.deployment import Deployment
from fairlane.client.following.progress import Rate
from fairlane.core.errors import RunNotFound
from fairlane.core.lru import Lru
from fairlane.flower.readings.error_words import errors_of
from fairlane.flower.readings.tallies import Sums, Tallies
from fairlane.model.run import RunRef, RunSpec
from fairlane.model.run_status import RunStatus, Scores

LISTED = 100
KNOWN = 2 * LISTED
SUMMED_AT_ONCE = 1_000
"""Items that one request for the list adds to the sums, over all its runs."""


class RunList:
    """Reads runs, ready for JSON; times are ISO 8601, or server milliseconds where the name ends in ``_ms``.

    Threads may share it.
    """

    def __init__(self, deployment: Deployment, tallies: Tallies, *, show_text: bool) -> None:
        self._deployment, self._tallies, self._lock = deployment, tallies, Lock()
        self._show_text = show_text
        self._known = Lru[RunRef, tuple[RunStatus, RunSpec | None]](KNOWN)
        self._rates = Lru[RunRef, Rate](KNOWN)

    def all(self, page: int = 1) -> dict[str, Any]:
        """A page of the runs in Redis, the newest first, one row each; pages count from 1."""
        reader = self._deployment.reader
        teams = reader.teams()
        refs = reader.newest_runs(teams, LISTED, skip=(page - 1) * LISTED)
        now_ms, rows, left = self._deployment.now_ms(), list[dict[str, Any]](), SUMMED_AT_ONCE
        for ref in refs:
            try:
                status, spec = self.look(ref)
            except RunNotFound:
                continue
            sums = self._tallies.advance(ref, spec, status.state, left) if spec is not None else None
            left -= sums.added if sums else 0
            rows.append(self.row(status, sums, now_ms))
        pages = max(1, math.ceil(reader.count_runs(teams) / LISTED))
        return {"now_ms": now_ms, "runs": rows, "page": page, "pages": pages}

    def look(self, ref: RunRef) -> tuple[RunStatus, RunSpec | None]:
        """A run's status, cached once it is final, and its spec if readable. Raises `RunNotFound`."""
        with self._lock:
            known = self._known.get(ref)
        if known is not None and known[0].state.finished:
            return known
        runs = self._deployment.runs
        if known is None or known[1] is None:
            found: tuple[RunStatus, RunSpec | None] = runs.overview(ref)
        else:
            found = runs.status(ref, known[1]), known[1]
        with self._lock:
            self._known.put(ref, found)
        return found

    def row(self, status: RunStatus, sums: Sums | None, now_ms: int) -> dict[str, Any]:
        """A run as a row: its document, with forecast, scores and cost."""
        shown = errors_of((part.lane for part in status.lanes), show_text=self._show_text)
        return run_document(status) | {
            "state": state_in_a_word(status),
            "over": status.state.finished,
            "eta_ms": self._eta(status, now_ms),
            "scores": scores_shown(sums.summary.scores if sums else {}),
            "cost_usd": sums.summary.cost_usd if sums else None,
            "summed": sums.items if sums else 0,
            "rejected_by": [{"lane": each.lane, "words": shown(each.words)} for each in status.rejections],
            "reason": shown(status.reason) if status.reason else None,
        }

    def _eta(self, status: RunStatus, now_ms: int) -> int | None:
        """The expected end, by the current rate of its jobs, or by the rate since its start."""
        if status.state.finished or status.paused is not None or status.started_ms is None:
            return None
        with self._lock:
            rate = self._rates.get_or_make(RunRef(status.team, status.run), Rate)
            rate.count(now_ms, status.jobs_done)
            per_second = rate.per_second
        if not per_second:
            per_second = status.jobs_done * 1000 / max(1, now_ms - status.started_ms)
        left = status.jobs - status.jobs_done
        return now_ms + round(left / per_second * 1000) if per_second else None


def scores_shown(scores: Mapping[str, Scores]) -> list[dict[str, Any]]:
    """Each evaluator's mean over the items so far, with its standard error."""
    return [{"name": name} | asdict(score) for name, score in scores.items()]
