"""A million rows that the scheduler reads itself: what they cost while they are scored, and to read again."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from fairlane import Reference
from fairlane.evaluators.builders import exact_match
from fairlane.model.run import RunRef
from fairlane.store.keys import Keys
from tests.benchmarks.bench_stack import bench_stack
from tests.benchmarks.processes import resident_mb
from tests.benchmarks.report import Finding
from tests.support.wait import wait_until

ROWS = 1_000_000
MOST_S = 1800.0
NAME = "1,000,000 rows by reference"


def referenced_rows() -> Iterator[Finding]:
    """1,000,000 outputs that exist, by reference, scored by a pure evaluator: no call is made."""
    with tempfile.TemporaryDirectory(prefix="fairlane-rows-") as folder:
        path = Path(folder) / "rows.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for n in range(ROWS):
                file.write(json.dumps({"id": n, "output": f"answer {n}", "expected": f"answer {n}"}) + "\n")
        config = f'[scheduler]\ndatasets = ["{folder}"]\n'
        with bench_stack(config, "[models.none]\nlatency_ms = 10\n", workers=1) as bench:
            redis = bench.redis()
            before, started = bench.rss_mb("scheduler-1"), time.perf_counter()
            memory_before = redis.info("memory")["used_memory"]
            run = bench.client.submit(
                Reference(path), output="output", evaluators=[exact_match("expected", name="exact")]
            )
            seen = [before]

            def over() -> bool:
                seen.append(bench.rss_mb("scheduler-1"))
                return run.status().state.finished

            wait_until(over, timeout=MOST_S, interval=1)
            yield Finding(NAME, "scored", ROWS / (time.perf_counter() - started), "rows/s")
            yield Finding(NAME, "scheduler RSS at most ÷ before", max(seen) / before, bar=1.3)
            memory = redis.info("memory")["used_memory"] - memory_before
            yield Finding(NAME, "Redis memory with all results", memory / ROWS, "bytes/row")
            fields: list[bytes] = redis.hkeys(Keys("main").rows(RunRef(run.team, run.id)))  # type: ignore[assignment]
            left = sum(field.isdigit() for field in fields)  # the others are digests of pages that were read
            yield Finding(NAME, "pages of rows left in Redis", left, "pages", bar=2)
            own = resident_mb(os.getpid())
            count, started = 0, time.perf_counter()
            for record in run.results():
                count += record.scores["exact"] == 1.0
            yield Finding(NAME, "read again", ROWS / (time.perf_counter() - started), "rows/s")
            grown = resident_mb(os.getpid()) / own
            yield Finding(NAME, "client RSS after ÷ before reading", grown, bar=1.3)
            yield Finding(NAME, "scored 1", count, "rows", bar=ROWS, at_most=False)
            redis.close()
