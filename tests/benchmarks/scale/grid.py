"""Workers × lanes: a fixed number of calls that cost nothing, as fast as they go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.benchmarks.scale.deployment import Load, NoopPlan, deployment, evenness, percentile

WORKERS, LANES = (1, 2, 4), (1, 4, 16, 64)
WHOLE = tuple((workers, lanes) for workers in WORKERS for lanes in LANES)
QUICK = ((1, 1), (2, 16), (4, 64))
JOBS, QUICK_JOBS = 8000, 2000
WARM_UP = 200


@dataclass(frozen=True, slots=True)
class Cell:
    """One deployment of the grid: ``wire_ms`` has p50, p99 and p99.9; ``even`` Jain's index and the slowest
    lane's part of the mean.
    """

    workers: int
    lanes: int
    load: Load
    wire_ms: tuple[float, float, float]
    even: tuple[float, float]

    def as_json(self) -> dict[str, Any]:
        measured = {"wire_ms": self.wire_ms, "even": self.even, "load": self.load.as_json()}
        return {"workers": self.workers, "lanes": self.lanes, **measured}


def measure(workers: int, lanes: int, jobs: int) -> Cell:
    """A new deployment, a few jobs to start every lane, then the load."""
    named = "".join(f'[lanes."noop:m{n}"]\nrequests_per_minute = 0\n' for n in range(lanes))
    config = (
        '[connections.noop]\nprotocol = "openai"\nbase_url = "http://127.0.0.1:9/v1"\n'
        f"{named}[scheduler]\nmax_in_flight = 10000\n"
    )
    with deployment(NoopPlan, config, None, workers) as loaded:
        loaded.put([{"n": n, "lane": n % lanes} for n in range(WARM_UP)], "noop:m{{ lane }}")
        load = loaded.put([{"n": n, "lane": n % lanes} for n in range(jobs)], "noop:m{{ lane }}")
    calls = [call for call in loaded.calls if call.at_s >= load.began_s]
    waits = sorted(call.wire_ms for call in calls)
    wire = (percentile(waits, 0.5), percentile(waits, 0.99), percentile(waits, 0.999))
    return Cell(workers, lanes, load, wire, evenness(calls, lanes))
