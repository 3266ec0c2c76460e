"""What the whole path costs: no-op jobs through it, as a share of what bare Celery reaches in that pool."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kombu import Producer

from fairlane import Client
from fairlane.broker.app import make_app
from fairlane.config.loader import load_settings
from fairlane.embedded.server import EmbeddedRedis
from tests.benchmarks.bare_worker import DONE, QUEUE, TASK
from tests.benchmarks.bench_stack import wait_for
from tests.benchmarks.report import Finding

JOBS, ROUNDS, SLOTS = 5000, 3, 100


def overhead() -> Iterator[Finding]:
    """One worker process, one scheduler, one Redis; the median of alternating rounds."""
    with tempfile.TemporaryDirectory(prefix="fairlane-bench-") as folder:
        directory = Path(folder)
        redis = EmbeddedRedis(directory / "redis").start()
        try:
            yield from _compare(directory, redis.url)
        finally:
            redis.stop()


def _compare(directory: Path, url: str) -> Iterator[Finding]:
    config = directory / "fairlane.toml"
    config.write_text(
        f'[redis]\nurl = "{url}"\n[connections.noop]\nprotocol = "openai"\nbase_url = "http://127.0.0.1:9"\n'
        f'[lanes."noop:x"]\nrequests_per_minute = 0\n[worker]\nslots = {SLOTS}\n'
        '[log]\nlevel = "warning"\n[scheduler]\nmax_in_flight = 10000\n'
    )
    bare, ours = [], []
    for _ in range(ROUNDS):
        with _process("tests.benchmarks.bare_worker", config, directory):
            bare.append(_bare_rate(config, url))
        with (
            _process("fairlane_scheduler", config, directory),
            _process("tests.benchmarks.noop_worker", config, directory),
        ):
            ours.append(_our_rate(url))
    bare_rate, our_rate = sorted(bare)[ROUNDS // 2], sorted(ours)[ROUNDS // 2]
    yield Finding("overhead", "bare Celery", bare_rate, "tasks/s")
    yield Finding("overhead", "the whole path", our_rate, "jobs/s")
    yield Finding("overhead", "share of bare Celery", our_rate / bare_rate, bar=0.7, at_most=False)


def _bare_rate(config: Path, url: str) -> float:
    from redis import Redis

    redis = Redis.from_url(url)
    app = make_app(load_settings(config, environ={}), "bench")
    with app.connection_for_write() as connection:
        producer = Producer(connection, auto_declare=False)
        for count in (200, JOBS):
            redis.set(DONE, 0)
            redis.set(f"{DONE}:target", count)
            started = time.perf_counter()
            with producer.batch(max_size=200):
                for n in range(count):
                    message = app.amqp.as_task_v2(f"bare-{count}-{n}", TASK, kwargs={"n": n})
                    producer.publish(
                        message.body,
                        exchange="",
                        routing_key=QUEUE,
                        serializer="json",
                        headers=message.headers,
                        **message.properties,
                    )
            wait_for(lambda: redis.get(DONE) == b"1", 120)
            elapsed = time.perf_counter() - started
    redis.close()
    return JOBS / elapsed


def _our_rate(url: str) -> float:
    """Until the run is finished, as Redis has it: a client looks every half second, and bare tasks are not
    waited for so long.
    """
    with Client(url, team="bench") as client:
        for count in (200, JOBS):
            started_ms = time.time() * 1000
            run = client.submit(dataset=({"n": n} for n in range(count)), prompt="{{ n }}", model="noop:x")
            elapsed_ms = (run.wait(timeout=120).finished_ms or 0) - started_ms
    return 1000 * JOBS / elapsed_ms


@contextmanager
def _process(module: str, config: Path, directory: Path) -> Iterator[None]:
    ready = directory / f"{module}.ready"
    ready.unlink(missing_ok=True)
    with (directory / f"{module}.log").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module, "--config", str(config), "--ready-file", str(ready)],
            stdout=log,
            stderr=log,
        )
    try:
        wait_for(ready.exists, 60)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
