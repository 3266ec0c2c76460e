"""A run on a lane with a configured limit, whose provider refuses every call that exceeds the limit."""

from __future__ import annotations

from dataclasses import dataclass

from fairlane import Record, Run
from fairlane.testing import ModelStats
from tests.support.cluster import Cluster, all_succeeded, numbered
from tests.support.wait import wait_until

PER_SECOND, LATENCY_MS = 60, 200
SERVER_BURST_S, LANE_BURST_S = 1.0, 0.5
"""The burst that the server allows, and the part that the lane uses; new processes deliver calls unevenly."""


@dataclass(slots=True)
class StrictRun:
    """A run on a lane that nothing else uses."""

    deployment: Cluster
    model: str
    run: Run
    jobs: int

    def wait_for(self, done: int) -> None:
        """Return once that many of its jobs have ended."""
        wait_until(lambda: self.run.status().jobs_done >= done)

    def served(self) -> ModelStats:
        """The provider's statistics."""
        return self.deployment.served(self.model)

    def check(self) -> list[Record]:
        """Wait for its end. Fails unless each job has one record, all succeeded, and no call was refused."""
        records = all_succeeded(self.run)
        assert len(records) == self.jobs
        assert self.served().rejected == 0
        return records


def start_strict_run(deployment: Cluster, jobs: int, *, latency_ms: float = LATENCY_MS) -> StrictRun:
    """Submit the run, and return once a quarter of its jobs have ended."""
    rate = {"requests_per_minute": 60 * PER_SECOND}
    model = deployment.new_model(**rate, burst_seconds=SERVER_BURST_S, latency_ms=latency_ms)
    deployment.lanes.limit(f"sim:{model}", {**rate, "burst_seconds": LANE_BURST_S})
    run = deployment.client.submit(numbered(jobs), "question {{ n }}", model=f"sim:{model}")
    started = StrictRun(deployment, model, run, jobs)
    started.wait_for(jobs // 4)
    return started
