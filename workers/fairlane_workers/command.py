"""A worker process with its own options: what ``python -m fairlane_workers`` runs."""

import argparse
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

from celery import signals

from fairlane.config.environment import process_environment
from fairlane.config.evaluation_environment import evaluation_defaults
from fairlane.config.loader import load_secrets, load_settings
from fairlane.core.errors import FairlaneError
from fairlane.export.files import whole_file
from fairlane.store.connection.connect import require_rights, require_usable
from fairlane.telemetry.metrics_server import require_address
from fairlane_workers.engine import Engine
from fairlane_workers.process import WorkerProcess, essential

FIRST_BEAT_S = 30.0


def main(argv: list[str] | None = None) -> int:
    """Run until SIGINT or SIGTERM (warm stop). Returns the process' exit code."""
    options = _parse(argv)
    given = {"slots": options.slots, "lanes": options.lanes.split(",") if options.lanes else None}
    try:
        settings = load_settings(options.config, worker={k: v for k, v in given.items() if v is not None})
        evaluation_defaults(process_environment())
        require_address(settings.metrics)
        require_usable(settings.redis, settings.broker_url)
        require_rights(settings.redis, settings.broker_url)
        name = options.name or f"worker@{socket.gethostname()}-{os.getpid()}"
        process = WorkerProcess(settings, load_secrets(settings), name)
    except FairlaneError as error:
        print(error, file=sys.stderr)  # noqa: T201 - logging is not configured yet
        return 2
    if options.ready_file is not None:
        _write_when_ready(options.ready_file, name, process.engine)
    return process.run(task_events=options.events)


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fairlane worker", description=__doc__)
    parser.add_argument("--config", type=Path, help="fairlane.toml to read")
    parser.add_argument("--slots", type=int, help="calls to run at once")
    parser.add_argument("--lanes", help="serve these lanes alone: names or patterns, separated by commas")
    parser.add_argument("--name", help="name in logs and lists; unique among workers")
    parser.add_argument("--events", action="store_true", help="send task events, for Flower")
    parser.add_argument("--ready-file", type=Path, help="written once it takes work and Redis knows it")
    return parser.parse_args(argv)


def _write_when_ready(path: Path, name: str, engine: Engine) -> None:
    @essential
    def write(**_: Any) -> None:
        engine.reported.result(FIRST_BEAT_S)
        with whole_file(path) as file:
            json.dump({"pid": os.getpid(), "name": name, "metrics": engine.metrics_url}, file)

    signals.worker_ready.connect(write, weak=False)
