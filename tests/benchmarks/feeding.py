"""How fast a scheduler renders and queues a run's items, in its tick and by child processes."""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from redis import Redis

from fairlane.config.environment import process_environment
from fairlane.config.sections import LogSettings, SandboxSettings
from fairlane.core.clock import SystemClock
from fairlane.embedded.server import EmbeddedRedis
from fairlane.model.choices import Message
from fairlane.sandbox.pool import Pool, open_pool
from fairlane.store.verbs import load_all
from fairlane.telemetry.logs import configure_logging
from fairlane_scheduler.feed.feeder import Feeder
from fairlane_scheduler.state.backlog import ActiveRun
from tests.benchmarks.report import Finding
from tests.support.scheduler_parts import Parts

ROWS = 20_000
TEMPLATES = {"{{ q }}": "in the tick", "{{ q | string | upper }}": "by children"}
NAME = "feeding"


def feeding() -> Iterator[Finding]:
    """20,000 short rows of one team: checked, rendered, sized and queued. No child has started before."""
    configure_logging(LogSettings(level="warning"), "bench")
    for template, where in TEMPLATES.items():
        per_second, cpu_us = _feed(template)
        yield Finding(NAME, f"{template}, {where}", per_second, "rows/s", bar=10_000, at_most=False)
        yield Finding(NAME, f"{template}: CPU of the tick", cpu_us, "µs/row")


def _feed(template: str) -> tuple[float, float]:
    """Rows a second from the submission on, and microseconds of the scheduler's thread for each."""
    gc.collect()
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedRedis(Path(folder), unix_socket=True) as server,
        Redis.from_url(server.url) as redis,
    ):
        load_all(redis)
        pool = open_pool(SandboxSettings(), process_environment())
        try:
            return _fed(redis, pool, template)
        finally:
            pool.close()


def _fed(redis: Redis, pool: Pool, template: str) -> tuple[float, float]:
    clock, parts = SystemClock(), Parts(redis, pool=pool)
    parts.feeder = Feeder(parts.runs, parts.backlog, parts.registry, clock, parts.settings, pool=pool)
    spec = parts.spec(ROWS, prompts=((Message(role="user", content=template),),))
    ref = parts.upload(spec, [{"q": number} for number in range(ROWS)])
    begun_s, begun_cpu_s = time.monotonic(), time.thread_time()
    while (run := parts.backlog.get(ref)) is None:
        wait_ms = parts.receiver.tick(None, parts.moment())
        time.sleep((wait_ms or 0) / 1000)  # noqa: TID251  as the scheduler's process does
        parts.clock.advance((wait_ms or 0) / 1000)
    while run.cursor < ROWS:
        parts.feeder.tick(replace(parts.moment(), monotonic_ms=clock.monotonic_ms()))
        _take_all(parts, run)
        wait_ms = parts.feeder.wait_ms(clock.monotonic_ms())
        time.sleep((wait_ms or 0) / 1000)  # noqa: TID251  as the scheduler's process does
    took_s, cpu_s = time.monotonic() - begun_s, time.thread_time() - begun_cpu_s
    return ROWS / took_s, cpu_s / ROWS * 1e6


def _take_all(parts: Parts, run: ActiveRun) -> None:
    """Count what is queued as granted, so that the feeder goes on."""
    for lane in run.task_lanes:
        parts.backlog.set_queued(lane, run.ref, 0)
