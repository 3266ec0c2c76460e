"""The demonstration's result: jobs, rates against limits, retries, scores, time against the ideal."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self
from urllib.request import ProxyHandler, build_opener

from rich.console import Console
from rich.table import Table

from fairlane.core.figures import counted, percent
from fairlane.model.lane import LaneLimits
from fairlane.model.record import Record
from fairlane.model.run_status import RunStatus

STATS_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class LaneUse:
    """A lane's use of its limit, by the provider's own count. Rates are requests a minute."""

    lane: str
    jobs: int
    calls: int
    rejected: int
    rate: float
    limit: float
    ideal_s: float

    @classmethod
    def of(
        cls, lane: str, jobs: int, limits: LaneLimits, latency_s: float, counted: Mapping[str, Any]
    ) -> Self:
        """The use of a lane; ``counted`` has the provider's counts for its model."""
        limit = limits.requests_per_minute or 0.0
        calls = counted["admitted"]
        rate = _rate(calls - limit / 60 * limits.burst_seconds, counted)
        return cls(
            lane, jobs, calls, counted["rejected"], rate, limit, ideal_seconds(jobs, limits, latency_s)
        )


@dataclass(frozen=True, slots=True)
class Summary:
    """The result; ``scores`` are means by evaluator."""

    status: RunStatus
    lanes: Sequence[LaneUse]
    scores: Mapping[str, float]
    wall_s: float
    ideal_s: float


def provider_stats(base_url: str) -> dict[str, dict[str, Any]]:
    """The simulated provider's counts by model."""
    url = f"{base_url.removesuffix('/v1')}/stats"
    with build_opener(ProxyHandler({})).open(url, timeout=STATS_TIMEOUT_S) as answer:  # it is on this machine
        models: dict[str, dict[str, Any]] = json.load(answer)["models"]
    return models


def ideal_seconds(jobs: int, limits: LaneLimits, latency_s: float) -> float:
    """(jobs beyond the burst) ÷ rate + median latency: the minimum within the limit."""
    rate = (limits.requests_per_minute or 0.0) / 60
    return max(0.0, jobs - rate * limits.burst_seconds) / rate + latency_s if rate else latency_s


def mean_scores(records: Iterable[Record]) -> dict[str, float]:
    """Mean of each evaluator's scores, over the items that have one."""
    sums: dict[str, tuple[float, int]] = {}
    for record in records:
        for name, score in record.scores.items():
            if score is not None:
                total, count = sums.get(name, (0.0, 0))
                sums[name] = (total + score, count + 1)
    return {name: total / count for name, (total, count) in sums.items()}


def show_summary(console: Console, summary: Summary) -> None:
    """A table of the lanes and one of the run."""
    console.print()
    console.print(_lanes(summary.lanes))
    console.print()
    console.print(_run(summary))


def _lanes(uses: Sequence[LaneUse]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("lane")
    for column in ("jobs", "calls", "rate/min", "limit/min", "used", "429s"):
        table.add_column(column, justify="right")
    for use in uses:
        numbers = (f"{use.jobs:,}", f"{use.calls:,}", f"{use.rate:,.0f}", f"{use.limit:,.0f}")
        used = f"{percent(use.rate, use.limit)}%" if use.limit else "–"
        table.add_row(use.lane, *numbers, used, f"{use.rejected:,}")
    return table


def _run(summary: Summary) -> Table:
    status = summary.status
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    states = ", ".join(f"{count:,} {state}" for state, count in sorted(status.by_state.items()) if count)
    table.add_row("jobs", f"{status.jobs_done:,} of {status.jobs:,}: {states}")
    table.add_row("retries", f"{status.retries:,}, and {counted(status.rate_limits, 'answer')} of 429")
    for name, value in sorted(summary.scores.items()):
        table.add_row(name, f"{percent(value, places=1)}%")
    ratio = summary.wall_s / summary.ideal_s
    table.add_row(
        "time", f"{summary.wall_s:.1f} s; the limits allow {summary.ideal_s:.1f} s: {ratio:.2f} × ideal"
    )
    return table


def _rate(beyond_burst: float, counted: Mapping[str, Any]) -> float:
    """Calls a minute from the first start to the last end; the burst is not part of it."""
    first_s, last_s = counted["first_admitted_s"], counted["last_completed_s"]
    if first_s is None or last_s is None or last_s <= first_s:
        return 0.0
    return max(0.0, beyond_burst) * 60 / float(last_s - first_s)
