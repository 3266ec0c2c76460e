"""The measured tables in Markdown, and the page that holds them between marks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.benchmarks.scale.deployment import Load
from tests.benchmarks.scale.grid import Cell
from tests.benchmarks.scale.ladder import Climb
from tests.benchmarks.scale.sizing import FORMULAS, LATENCY_S, Costs, Knee, Machines


def rewrite(page: Path, tables: Mapping[str, str]) -> None:
    """Replace what stands between ``<!-- NAME -->`` and ``<!-- /NAME -->``, for each table.

    Raises ``ValueError`` for a page that has no such place; then it is unchanged.
    """
    text = page.read_text(encoding="utf-8")
    for name, table in tables.items():
        place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        text, found = place.subn(lambda m, table=table: f"{m[1]}\n{table.strip()}\n\n{m[2]}", text)  # type: ignore[misc]
        if found != 1:
            raise ValueError(f"{page} has {found} places for {name!r}; it needs one: <!-- {name} -->")
    page.write_text(text, encoding="utf-8")


def grid_table(cells: Sequence[Cell]) -> str:
    head = (
        "workers", "lanes", "jobs/s", "CPU a job, ms", "Redis", "scheduler", "workers", "submitter",
        "fullest core", "permit → call p50 / p99 / p99.9, ms", "evenness", "RSS a worker, MiB",
    )  # fmt: skip
    rows = []
    for cell in cells:
        load, cores = cell.load, {k: v for k, v in cell.load.cores.items() if k != "submitter"}
        fullest = max(cores, key=lambda name: cores[name])
        rows.append(
            (
                str(cell.workers), str(cell.lanes), f"{load.per_s:,.0f}", f"{load.cpu_ms():.2f}",
                *_by_role(load),
                f"{load.cpu_ms('submitter'):.3f}", f"{fullest} {cores[fullest]:.0%}", _waits(cell.wire_ms),
                f"{cell.even[0]:.3f} ({cell.even[1]:.0%})", f"{_worker_mb(load.rss_mb):.0f}",
            )
        )  # fmt: skip
    return markdown(head, rows)


def ladder_table(climbs: Sequence[Climb]) -> str:
    head = (
        "calls/s", "lanes", "burst, s", "reached", "CPU per 1,000 calls, s", "Redis", "scheduler", "workers",
        "permit → wire p50 / p99 / p99.9, ms", "evenness", "429s", "RSS: scheduler, a worker, MiB",
    )  # fmt: skip
    rows = []
    for each in climbs:
        load = each.load
        mb = f"{load.rss_mb['scheduler-1']:.0f}, {_worker_mb(load.rss_mb):.0f}"
        rows.append(
            (
                f"{each.rung.per_s:,}", str(each.rung.lanes), f"{each.rung.burst_s:g}", f"{each.reached:.1%}",
                f"{load.cpu_ms():.2f}",
                *_by_role(load),
                _waits(each.wire_ms), f"{each.even[0]:.3f} ({each.even[1]:.0%})", str(each.refused), mb,
            )
        )  # fmt: skip
    return markdown(head, rows)


def knee_text(knee: Knee) -> str:
    workers = "worker" if knee.workers == 1 else "workers"
    lanes = "lane" if knee.lanes == 1 else "lanes"
    rows = [
        ("one Redis", f"{knee.redis_per_s:,.0f}"),
        ("one scheduler", f"{knee.scheduler_per_s:,.0f}"),
        ("one worker process, calls that cost nothing", f"{knee.worker_per_s:,.0f}"),
    ]
    return (
        f"The most was **{knee.per_s:,.0f} jobs/s**, with {knee.workers} {workers} and {knee.lanes} {lanes}. "
        f"Then {knee.used:.0%} of the machine's\ncores were in use, and the fullest process was "
        f"{knee.fullest} with {knee.fullest_cores:.0%} of a core. With a core for each process and "
        f"enough\nworkers, **{knee.first} is full first**. What a whole core carries, "
        "at the CPU a job measured there:\n\n" + markdown(("part", "jobs/s"), rows)
    )


def machines_table(found: Iterable[Machines], costs: Costs) -> str:
    head = (
        "calls/s", "cores: Redis", "scheduler", "workers", "worker processes",
        f"slots ({LATENCY_S:g} s a call)", "memory of scheduler and workers", "cells",
    )  # fmt: skip
    rows = [
        (
            f"{each.per_s:,}", f"{each.redis_cores:.2f}", f"{each.scheduler_cores:.2f}",
            f"{each.worker_cores:.2f}", str(each.workers), f"{each.slots:,}",
            f"{each.memory_mb / 1024:.1f} GiB", str(each.cells),
        )
        for each in found
    ]  # fmt: skip
    measured = (
        f"- A scheduler has {costs.scheduler_mb:.0f} MiB, a worker {costs.worker_mb:.0f} MiB at rest and "
        f"{costs.slot_mb * 1024:.0f} KiB more for each call in flight.\n"
        f"- **Redis memory** = waiting short rows × {costs.waiting_bytes:.1f} bytes + short records, "
        f"with their rows, × {costs.record_bytes:.0f} bytes.\n"
    )
    return f"{markdown(head, rows)}\n\n{FORMULAS}{measured}"


def _by_role(load: Load) -> list[str]:
    return [f"{load.cpu_ms(role):.2f}" for role in ("redis", "scheduler", "worker")]


def _waits(wire_ms: tuple[float, float, float]) -> str:
    return " / ".join(f"{each:,.0f}" for each in wire_ms)


def _worker_mb(rss_mb: Mapping[str, float]) -> float:
    return max(mb for name, mb in rss_mb.items() if name.startswith("worker"))


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---:" if i else "---" for i in range(len(head))], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
