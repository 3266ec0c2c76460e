"""What the demonstration came to: jobs, rates against limits, retries, scores, time against the ideal."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fairlane.lane import LaneLimits
from fairlane.run import Record, RunStatus


@dataclass(frozen=True, slots=True)
class LaneUse:
    """A lane's use of its limit, by the provider's own count. Rates are requests a minute."""

    lane: str
    limit: float
    calls: int
    rate: float
    rejected: int


def provider_stats(base_url: str) -> dict[str, dict[str, Any]]:
    """The simulated provider's counts by model."""
    with urllib.request.urlopen(f"{base_url.removesuffix('/v1')}/stats", timeout=10) as answer:  # noqa: S310
        models: dict[str, dict[str, Any]] = json.load(answer)["models"]
    return models


def lane_use(stats: dict[str, dict[str, Any]], limits: dict[str, LaneLimits]) -> list[LaneUse]:
    """Each lane between its first and its last call; the burst is not part of the rate."""
    uses = []
    for lane, limit in limits.items():
        counted = stats.get(lane.partition(":")[2], {})
        first, last, calls = (
            counted.get("first_admitted_s"),
            counted.get("last_completed_s"),
            counted["admitted"],
        )
        minutes = (last - first) / 60 if first is not None and last is not None and last > first else None
        per_minute = limit.requests_per_minute or 0.0
        beyond_burst = max(0.0, calls - per_minute * limit.burst_seconds / 60)
        rate = beyond_burst / minutes if minutes else 0.0
        uses.append(LaneUse(lane, per_minute, calls, rate, counted["rejected"]))
    return uses


def ideal_seconds(jobs: int, limit: LaneLimits, latency_s: float) -> float:
    """(jobs beyond the burst) ÷ rate + median latency: nobody who keeps the limit can be faster."""
    rate = (limit.requests_per_minute or 0.0) / 60
    return max(0.0, jobs - rate * limit.burst_seconds) / rate + latency_s if rate else latency_s


def write_results(records: Iterable[Record], path: Path) -> Iterator[Record]:
    """Write records as JSON lines while they pass through."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as out:
        for record in records:
            out.write(json.dumps(asdict(record), ensure_ascii=False) + "\n")
            yield record


def mean_scores(records: Iterable[Record]) -> dict[str, float]:
    """Mean of each evaluator's scores, over the items that have one."""
    sums: dict[str, tuple[float, int]] = {}
    for record in records:
        for name, score in record.scores.items():
            if score is not None:
                total, count = sums.get(name, (0.0, 0))
                sums[name] = (total + score, count + 1)
    return {name: total / count for name, (total, count) in sums.items()}


def show_summary(
    console: Console,
    status: RunStatus,
    uses: list[LaneUse],
    scores: dict[str, float],
    wall_s: float,
    ideal_s: float,
) -> None:
    """Two small tables and one line."""
    lanes = Table("lane", "calls", "rate/min", "limit/min", "used", "429s", title="Lanes")
    for use in uses:
        share = f"{use.rate / use.limit:.0%}" if use.limit else "-"
        lanes.add_row(
            use.lane, f"{use.calls:,}", f"{use.rate:,.0f}", f"{use.limit:,.0f}", share, str(use.rejected)
        )
    console.print(lanes)
    run = Table("", "", title=f"Run {status.run}", show_header=False)
    run.add_row("jobs", f"{status.jobs_done:,} of {status.jobs:,}")
    for state, count in sorted(status.by_state.items()):
        run.add_row(f"  {state}", f"{count:,}")
    run.add_row("retries", f"{status.retries:,}")
    run.add_row("429s met", f"{status.rate_limits:,}")
    for name, value in sorted(scores.items()):
        run.add_row(f"score {name}", f"{value:.1%}")
    run.add_row("time", f"{wall_s:.1f} s = {wall_s / ideal_s:.3f} × ideal ({ideal_s:.1f} s)")
    console.print(run)
