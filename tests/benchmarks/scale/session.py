"""The whole measurement: grid, ladders, knee and machines, within a bounded time."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from redis import Redis

from fairlane import Client
from fairlane.embedded.server import EmbeddedRedis
from fairlane.model.run import RunRef
from fairlane.store.keys import Keys
from tests.benchmarks.report import Finding
from tests.benchmarks.scale import grid, ladder
from tests.benchmarks.scale.page import grid_table, knee_text, ladder_table, machines_table, rewrite
from tests.benchmarks.scale.sizing import TARGETS, costs_of, knee_of, machines

NAME = "scale"
MOST_S = 480.0
"""The whole measurement ends within this: no part begins that would pass it."""

WAITING_ROWS = 100_000
QUIET = 0.25  # of the load average ÷ cores: more is the work of others
CPU_50_S, CPU_500_S, WIRE_P50_MS, WIRE_P99_MS = 3.5, 2.0, 5.0, 30.0


def scale(
    *, quick: bool = False, docs: Path | None = None, details: dict[str, Any] | None = None
) -> Iterator[Finding]:
    """Workers × lanes and a ladder of rates: what one Redis carries, and the machines for a rate.

    ``docs``: the page whose tables are written anew; ``details`` receives all that was measured.
    """
    began, load = time.monotonic(), os.getloadavg()[0]
    # The ladders come first: all machines are computed from them.
    http = ladder.climb(ladder.HTTP_QUICK if quick else ladder.HTTP, http=True)
    yield from _calls(http)
    noop = ladder.climb(ladder.NOOP_QUICK if quick else ladder.NOOP, http=False)
    for each in noop:
        yield Finding(NAME, f"no-op jobs, {each.rung.per_s:,}/s wished: reached", each.reached, "×")
    cells, slowest_s, left_out = [], 0.0, []
    for workers, lanes in grid.QUICK if quick else grid.WHOLE:
        if time.monotonic() - began + 1.5 * slowest_s > MOST_S:
            left_out.append(f"{workers} × {lanes}")
            continue
        cell_began = time.monotonic()
        cell = grid.measure(workers, lanes, grid.QUICK_JOBS if quick else grid.JOBS)
        slowest_s = max(slowest_s, time.monotonic() - cell_began)
        cells.append(cell)
        name = f"{workers} workers × {lanes} lanes"
        cpu = ", ".join(f"{k} {v:.2f}" for k, v in cell.load.cores.items())
        yield Finding(NAME, f"{name}: no-op jobs", cell.load.per_s, "/s", note=f"cores: {cpu}")
        yield Finding(NAME, f"{name}: CPU a job", cell.load.cpu_ms(), "ms")
        yield Finding(NAME, f"{name}: evenness of lanes", cell.even[0], "", note="Jain's index")
    knee = knee_of(cells, os.cpu_count() or 1)
    yield Finding(NAME, "the most that was reached", knee.per_s, "jobs/s", note=f"fullest: {knee.fullest}")
    yield Finding(NAME, "one Redis with a core of its own", knee.redis_per_s, "jobs/s")
    yield Finding(NAME, "one scheduler with a core of its own", knee.scheduler_per_s, "jobs/s")
    costs = costs_of(cells, noop, http, _waiting_bytes())
    sizes = [machines(per_s, costs) for per_s in TARGETS]
    for each in sizes:
        cores = each.redis_cores + each.scheduler_cores + each.worker_cores
        yield Finding(NAME, f"{each.per_s:,} calls/s need", cores, "cores", note=f"{each.workers} workers")
    took_s = time.monotonic() - began
    yield Finding(NAME, "measured within", took_s, "s", bar=120 if quick else MOST_S)
    if details is not None:
        details[NAME] = {
            "grid": [cell.as_json() for cell in cells],
            "ladder": [each.as_json() for each in (*http, *noop)],
            "knee": knee.as_json(),
            "machines": [each.as_json() for each in sizes],
            "left_out": left_out,
        }
    if docs is not None:
        rewrite(
            docs,
            {
                "measured": _measured(quick, took_s, load, left_out, docs),
                "ladder": ladder_table(http),
                "ladder-noop": ladder_table(noop),
                "grid": grid_table(cells),
                "knee": knee_text(knee),
                "machines": machines_table(sizes, costs),
            },
        )


def _calls(http: list[ladder.Climb]) -> Iterator[Finding]:
    cpu_bars = {50: CPU_50_S, 500: CPU_500_S}
    for each in http:
        at = f"{each.rung.per_s}/s over HTTP, {each.rung.lanes} lanes, {each.rung.burst_s:g} s of burst"
        barred = each.rung.lanes == 1
        spent = ", ".join(f"{name} {used:.2f} s" for name, used in each.load.cpu_s.items())
        bar = cpu_bars.get(each.rung.per_s) if barred else None
        yield Finding(NAME, f"{at}: CPU per 1,000 calls", each.load.cpu_ms(), "s", bar=bar, note=spent)
        bars = (WIRE_P50_MS, WIRE_P99_MS, None) if barred and each.rung.per_s == 500 else (None, None, None)
        for name, value, most in zip(("p50", "p99", "p99.9"), each.wire_ms, bars, strict=True):
            yield Finding(NAME, f"{at}: permit to wire, {name}", value, "ms", bar=most)
        yield Finding(NAME, f"{at}: reached", each.reached, "×")
        yield Finding(NAME, f"{at}: evenness of lanes", each.even[0], "", note="Jain's index")
        yield Finding(NAME, f"{at}: 429s", each.refused, "calls", bar=0)


def _waiting_bytes() -> float:
    """Redis memory of a short row that waits."""
    with tempfile.TemporaryDirectory(prefix="fairlane-bench-") as folder:
        server = EmbeddedRedis(Path(folder)).start()
        try:
            redis = Redis.from_url(server.url)
            with Client(server.url, team="bench") as client:
                rows = ({"id": n, "text": f"row number {n}"} for n in range(WAITING_ROWS))
                run = client.submit(dataset=rows, prompt="Say {{ text }}", model="sim:wait")
                kept = redis.memory_usage(Keys("main").rows(RunRef(run.team, run.id)), samples=0)
            redis.close()
        finally:
            server.stop()
    return float(kept or 0) / WAITING_ROWS


def _measured(quick: bool, took_s: float, load: float, left_out: list[str], docs: Path) -> str:
    """Machine, versions and command, as a paragraph."""
    models = (
        line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")
    )
    total = next((line.split()[1] for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), "0")
    command = f"python -m tests.benchmarks scale{' --quick' if quick else ''} --docs {docs}"
    missing = f"\nLeft out for lack of time (workers × lanes): {', '.join(left_out)}." if left_out else ""
    others = (
        f"\n**Others used this machine** (load average before it began: {load:.1f}), so only CPU times count."
        if load > QUIET * (os.cpu_count() or 1)
        else ""
    )
    return (
        f"Measured on {datetime.now(UTC):%Y-%m-%d} with `{command}`, in {took_s:.0f} s, on a machine of "
        f"{os.cpu_count()} cores ({next(models, platform.machine())},\n{int(total) / 2**20:.0f} GiB, "
        f"Python {platform.python_version()}). The simulated provider runs beside the rest and is not "
        f"counted.{others}{missing}"
    )


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
