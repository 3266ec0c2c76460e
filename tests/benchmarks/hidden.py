"""Workloads over HTTP with limits that nobody has configured: what does their detection cost?

"Ideal" is that of a known limit: (jobs beyond the burst) ÷ rate + median latency.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.benchmarks.bench_stack import bench_stack
from tests.benchmarks.report import Finding
from tests.benchmarks.workloads import LATENCY_S, config, run, simulated

JOBS, PER_MINUTE = 1500, 3000


def _hidden(hint: str, shown: str, wall_bar: float, refused_bar: float) -> Callable[[], Iterator[Finding]]:
    def measure() -> Iterator[Finding]:
        model = simulated("hidden", PER_MINUTE) + f'headers = "{hint}"\n'
        with bench_stack(config(""), model) as bench:
            wall, _, counted = run(bench, JOBS, model="sim:hidden")
            stats = bench.stats("hidden")
            rate = PER_MINUTE / 60
            ideal, name = (JOBS - rate) / rate + LATENCY_S, f"hidden limit, {shown}"
            yield Finding(name, "wall ÷ ideal", wall / ideal, bar=wall_bar)
            refused = stats["rejected"] * 1000 / JOBS
            yield Finding(name, "429s per 1,000 jobs", refused, "calls", bar=refused_bar)
            yield Finding(name, "succeeded", counted["succeeded"], "jobs", bar=JOBS, at_most=False)

    measure.__doc__ = f"3,000 requests a minute that nobody has configured, {shown}, 1,500 jobs."
    return measure


hidden_headers = _hidden("full", "limit headers", 1.05, 5)
hidden_retry_after = _hidden("retry_after", "Retry-After only", 1.08, 15)
hidden_silent = _hidden("none", "no hints", 1.15, 20)
