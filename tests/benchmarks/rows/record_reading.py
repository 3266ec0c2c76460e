"""Finished short records: what Redis keeps of one, and how fast a client reads them and writes JSON lines."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from redis import Redis

from fairlane import Client, Run
from fairlane.embedded.server import EmbeddedRedis
from fairlane.model.job import JobState
from fairlane.model.results import TaskResult
from fairlane.model.run import RunRef
from fairlane.model.tokens import Usage
from fairlane.store.keys import Keys
from tests.benchmarks.processes import cpu_s, resident_mb
from tests.benchmarks.report import Finding

ROWS = 500_000
AT_ONCE = 2000
NAME = "500,000 records"


def record_reading() -> Iterator[Finding]:
    """A finished run of 500,000 short records, as workers would have written it; no worker runs."""
    with tempfile.TemporaryDirectory(prefix="fairlane-bench-") as folder:
        server = EmbeddedRedis(Path(folder) / "redis").start()
        try:
            with Client(server.url, team="bench") as client, Redis.from_url(server.url) as redis:
                run = _finished(client, redis)
                keys, ref = Keys("main"), RunRef(run.team, run.id)
                kept = redis.memory_usage(keys.results(ref), samples=0) or 0
                rows = redis.memory_usage(keys.rows(ref), samples=0) or 0
                yield Finding(NAME, "Redis memory a record", kept / ROWS, "bytes", bar=96)
                yield Finding(NAME, "Redis memory a row", rows / ROWS, "bytes", bar=6)
                yield from _read(run, Path(folder) / "records.jsonl", server.process.pid)
        finally:
            server.stop()


def _finished(client: Client, redis: Redis) -> Run:
    run = client.submit(
        dataset=({"id": n, "text": f"row number {n}"} for n in range(ROWS)),
        prompt="Say {{ text }}",
        model="sim:short",
    )
    keys, ref = Keys("main"), RunRef(run.team, run.id)
    reads_short = run.spec is not None and run.spec.short_results
    for first in range(0, ROWS, AT_ONCE):
        some = range(first, min(first + AT_ONCE, ROWS))
        redis.hset(keys.results(ref), mapping={str(n): _result(n, short=reads_short) for n in some})
    counts = {
        "items": ROWS,
        "items_done": ROWS,
        "jobs": ROWS,
        "jobs_done": ROWS,
        f"n:{JobState.SUCCEEDED}": ROWS,
    }
    times = {"submitted_ms": 1, "started_ms": 1, "finished_ms": 2}
    redis.hset(keys.state(ref), mapping={"state": "completed", **counts, **times})
    return client.run(run.id)


def _result(number: int, *, short: bool) -> str:
    """What a worker stores of a chat of one model."""
    result = TaskResult(
        JobState.SUCCEEDED,
        f"answer {number}",
        usage=Usage(12, 4),
        attempts=1,
        latency_ms=500 + number % 400,
        finish_reason="stop",
    )
    return result.to_json(short=short)


def _read(run: Run, path: Path, server: int) -> Iterator[Finding]:
    for what, read in (
        ("read by run.results()", lambda: sum(1 for _ in run.results())),
        ("written as JSON lines", lambda: run.export(path)),
    ):
        own, rss = os.getpid(), resident_mb(os.getpid())
        began, used, redis_used = time.perf_counter(), cpu_s(own), cpu_s(server)
        count = read()
        took_s, cpu, redis_cpu = time.perf_counter() - began, cpu_s(own) - used, cpu_s(server) - redis_used
        note = f"CPU: client {cpu:.2f} s, Redis {redis_cpu:.2f} s"
        yield Finding(NAME, what, count / took_s, "records/s", bar=100_000, at_most=False, note=note)
        yield Finding(NAME, f"{what}: by the client's CPU alone", count / cpu, "records/s")
        grown = resident_mb(own) / rss
        yield Finding(NAME, f"{what}: client RSS after ÷ before", grown, bar=1.3)
