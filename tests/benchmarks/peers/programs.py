"""Runs each program on the same work: plain aiohttp, bare Celery, LiteLLM's router, Fairlane."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kombu import Producer
from redis import Redis

from fairlane.broker.app import make_app
from fairlane.config.loader import load_settings
from fairlane.embedded.server import EmbeddedRedis
from tests.benchmarks.bench_stack import bench_stack, wait_for
from tests.benchmarks.peers.celery_worker import DONE, QUEUE, TASK
from tests.benchmarks.processes import cpu_of
from tests.benchmarks.workloads import run

ROOT = Path(__file__).parents[3]
PEERS = ROOT / ".venv-peers" / "bin" / "python"
"""The interpreter that has LiteLLM; `make bench-peers` makes it."""

MOST_S = 240.0
KEY = "sk-measured"


@dataclass(frozen=True, slots=True)
class Work:
    """What each program does. ``slots``: calls at once, where a program has no better bound."""

    model: str
    per_s: float
    prompts: tuple[str, ...]
    params: dict[str, Any]
    slots: int
    base_url: str = ""
    key: str = KEY
    burst: float = 0.0
    retries: int = 100

    def at(self, base_url: str) -> Work:
        return replace(self, base_url=base_url, burst=0.8 * self.per_s)


@dataclass(frozen=True, slots=True)
class Did:
    """``cpu_s``: of all its processes and its Redis, without their start and without the provider."""

    wall_s: float
    cpu_s: float
    succeeded: int


def plain_aiohttp(work: Work) -> Did:
    return _standalone(sys.executable, "plain_aiohttp.py", work)


def litellm_router(work: Work) -> Did:
    return _standalone(str(PEERS), "litellm_router.py", work)


def bare_celery(work: Work) -> Did:
    """The producer paces the tasks at the limit: Celery's own ``rate_limit`` holds for each worker alone."""
    with tempfile.TemporaryDirectory(prefix="fairlane-bench-") as folder:
        directory = Path(folder)
        server = EmbeddedRedis(directory / "redis").start()
        try:
            config = directory / "fairlane.toml"
            config.write_text(f'[redis]\nurl = "{server.url}"\n[log]\nlevel = "warning"\n')
            redis = Redis.from_url(server.url)
            with _celery_worker(directory, config, replace(work, slots=2 * work.slots)) as pid:
                pids = {"redis": server.process.pid, "worker": pid}
                before, own, began = cpu_of(pids), time.process_time(), time.perf_counter()
                _publish(config, work, began)
                wait_for(lambda: redis.get(DONE) is not None, MOST_S)
                wall, now = time.perf_counter() - began, cpu_of(pids)
                cpu = sum(now[name] - before[name] for name in pids) + time.process_time() - own
            succeeded = int(redis.get(DONE) or 0)
            redis.close()
        finally:
            server.stop()
    return Did(wall, cpu, succeeded)


def fairlane(work: Work) -> Did:
    """Two workers and a scheduler, as `fairlane up` starts them."""
    stated = (
        f'[connections.sim]\nprotocol = "openai"\nbase_url = "{work.base_url}"\napi_key_env = "BENCH_KEY"\n'
        f'[lanes."sim:{work.model}"]\nrequests_per_minute = {work.per_s * 60:g}\n'
    )
    with bench_stack(stated, None, slots=None, env={"BENCH_KEY": work.key}) as bench:
        own, rows = time.process_time(), [{"prompt": prompt} for prompt in work.prompts]
        wall, cpu, counted = run(
            bench, len(rows), model=f"sim:{work.model}", rows=rows, prompt="{{ prompt }}", **work.params
        )
        return Did(wall, sum(cpu.values()) + time.process_time() - own, counted["succeeded"])


PROGRAMS: dict[str, Callable[[Work], Did]] = {
    "plain aiohttp": plain_aiohttp,
    "bare Celery": bare_celery,
    "LiteLLM's router": litellm_router,
    "Fairlane": fairlane,
}


def _standalone(python: str, program: str, work: Work) -> Did:
    with tempfile.TemporaryDirectory(prefix="fairlane-bench-") as folder:
        file = Path(folder) / "work.json"
        file.write_text(json.dumps(asdict(work)))
        # LiteLLM would fetch a list of prices at its start.
        environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}  # noqa: TID251
        ended = subprocess.run(
            [python, str(Path(__file__).with_name(program)), str(file)],
            stdout=subprocess.PIPE,
            env=environment,
            timeout=MOST_S,
            check=True,
        )
        found = json.loads(ended.stdout.splitlines()[-1])
    return Did(found["wall_s"], found["cpu_s"], found["succeeded"])


@contextmanager
def _celery_worker(directory: Path, config: Path, work: Work) -> Iterator[int]:
    ready, file = directory / "ready", directory / "work.json"
    file.write_text(json.dumps(asdict(work)))
    module = [sys.executable, "-m", "tests.benchmarks.peers.celery_worker"]
    with (directory / "worker.log").open("a") as log:
        process = subprocess.Popen(
            [*module, "--config", str(config), "--work", str(file), "--ready-file", str(ready)],
            stdout=log,
            stderr=log,
        )
    try:
        wait_for(ready.exists, 60)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _publish(config: Path, work: Work, began: float) -> None:
    app = make_app(load_settings(config, environ={}), "bench")
    with app.connection_for_write() as connection:
        producer = Producer(connection, auto_declare=False)
        for n, prompt in enumerate(work.prompts):
            due = began + max(0.0, (n + 1 - work.burst) / work.per_s)
            if (wait_s := due - time.perf_counter()) > 0:
                time.sleep(wait_s)  # noqa: TID251 - a program that is measured
            message = app.amqp.as_task_v2(f"call-{n}", TASK, kwargs={"prompt": prompt})
            producer.publish(
                message.body,
                exchange="",
                routing_key=QUEUE,
                serializer="json",
                headers=message.headers,
                **message.properties,
            )
