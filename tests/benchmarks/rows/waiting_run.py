"""A waiting run of a million short rows: what it costs to submit, to keep, and to schedule around."""

from __future__ import annotations

import time
from collections.abc import Iterator

from fairlane.store.keys import Keys
from fairlane.store.write.lanes.lanes import Lanes
from tests.benchmarks.bench_stack import bench_stack, wait_for
from tests.benchmarks.report import Finding

ROWS = 1_000_000


def waiting_run() -> Iterator[Finding]:
    """The lane is paused, so that the run waits whole."""
    config = (
        '[connections.sim]\nprotocol = "openai"\nbase_url = "http://127.0.0.1:9/v1"\n'
        '[lanes."sim:wait"]\nrequests_per_minute = 60\n'
    )
    with bench_stack(config, "[models.wait]\nlatency_ms = 10\n", workers=1) as bench:
        redis = bench.redis()
        Lanes(redis, Keys("main")).pause("sim:wait")
        rss_before = bench.rss_mb("scheduler-1")
        memory_before = redis.info("memory")["used_memory"]
        started, used = time.perf_counter(), time.process_time()
        run = bench.client.submit(
            dataset=({"id": n, "text": f"row number {n}"} for n in range(ROWS)),
            prompt="Say {{ text }}",
            model="sim:wait",
        )
        submitted, cpu = time.perf_counter() - started, time.process_time() - used
        wait_for(lambda: run.status().state == "running", 60)
        wait_for(lambda: any(lane.known for lane in run.status().lanes), 60)
        memory = redis.info("memory")["used_memory"] - memory_before
        yield Finding("1,000,000 rows", "submitted within", submitted, "s", bar=4, note=f"CPU {cpu:.2f} s")
        yield Finding("1,000,000 rows", "Redis memory", memory / ROWS, "bytes/row", bar=6)
        yield Finding("1,000,000 rows", "scheduler RSS before", rss_before, "MiB")
        rss = bench.rss_mb("scheduler-1")
        yield Finding("1,000,000 rows", "scheduler RSS after", rss, "MiB")
        yield Finding("1,000,000 rows", "scheduler RSS after ÷ before", rss / rss_before, bar=1.1)
        redis.close()
