"""A scheduler process, leader or hot standby: what ``python -m fairlane_scheduler`` runs."""

import argparse
import gc
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fairlane.config.environment import process_environment
from fairlane.config.evaluation_environment import evaluation_defaults
from fairlane.config.loader import load_settings
from fairlane.core.clock import SystemClock
from fairlane.core.errors import FairlaneError
from fairlane.export.files import whole_file
from fairlane.sandbox.pool import open_pool
from fairlane.store.connection.connect import open_store, require_rights, require_usable
from fairlane.telemetry.logs import configure_logging
from fairlane.telemetry.metrics_server import require_address
from fairlane.telemetry.watchdog import Watchdog
from fairlane_scheduler.dispatch.publisher import Publisher
from fairlane_scheduler.feed.tokenizers import load_tokenizers
from fairlane_scheduler.monitoring.serving import Monitoring
from fairlane_scheduler.runner import Runner, StopEvent
from fairlane_scheduler.service import Scheduler
from fairlane_scheduler.upkeep.archiver import start_archiver


def main(argv: list[str] | None = None) -> int:
    """Run until SIGINT or SIGTERM. Returns the process' exit code."""
    options = _parse(argv)
    with stopped_by_signals() as stop:
        return _run(options, stop)


def _run(options: argparse.Namespace, stop: threading.Event) -> int:
    try:
        settings = load_settings(options.config)
        evaluation_defaults(process_environment())
        require_address(settings.metrics)
        require_usable(settings.redis, settings.broker_url)
        require_rights(settings.redis, settings.broker_url)
    except FairlaneError as error:
        print(error, file=sys.stderr)  # noqa: T201 - logging is not configured yet
        return 2
    name = options.name or f"scheduler@{socket.gethostname()}-{os.getpid()}"
    configure_logging(settings.log, name)
    clock = SystemClock()
    # A command whose reply is lost may have taken effect: it is not retried, the scheduler reloads its state.
    redis = open_store(settings.redis, retries=0, answer_s=settings.scheduler.leader_answer_s)
    monitoring = Monitoring(settings, clock)
    metrics = monitoring.metrics if settings.metrics.enabled else None
    scheduler = Scheduler(
        redis,
        settings,
        clock,
        identity=name,
        publisher=Publisher(settings),
        metrics=metrics,
        tokenizers=load_tokenizers(process_environment()),
        pool=open_pool(settings.sandbox, process_environment()),
    )
    try:
        archiver = start_archiver(settings, clock, lambda: scheduler.leader.leads)
    except FairlaneError as error:
        print(error, file=sys.stderr)  # noqa: T201 - what is wrong is the configuration
        return 2
    runner = Runner(scheduler, redis, clock, monitoring.health, stop)
    if archiver is None:
        monitoring.start(scheduler.leader)
    else:
        monitoring.start(scheduler.leader, lambda: archiver.unmoved)
    watchdog = Watchdog(monitoring.health.silent_s)
    watchdog.start()
    gc.freeze()  # permanent objects: a garbage collection that scans them takes 50 ms of a tick
    runner.run(on_ready=lambda: _write_ready(options.ready_file, name, monitoring.url))
    watchdog.stop()
    monitoring.stop()
    if archiver is not None:
        archiver.thread.stop()
    redis.close()
    return 0


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGINT or SIGTERM sets, also while the scheduler still starts."""
    stop = StopEvent()
    numbers = (signal.SIGINT, signal.SIGTERM)
    previous = {number: signal.signal(number, lambda *_: stop.set()) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fairlane scheduler", description=__doc__)
    parser.add_argument("--config", type=Path, help="fairlane.toml to read")
    parser.add_argument("--name", help="name in logs and in lists; best unique among schedulers")
    parser.add_argument("--ready-file", type=Path, help="written once the first tick is done")
    return parser.parse_args(argv)


def _write_ready(path: Path | None, name: str, metrics: str | None) -> None:
    if path is not None:
        with whole_file(path) as file:
            json.dump({"pid": os.getpid(), "name": name, "metrics": metrics}, file)
