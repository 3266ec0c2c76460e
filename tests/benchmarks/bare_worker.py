"""A Celery worker with one task that does nothing, configured as Fairlane configures its own."""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import Any

from celery import signals
from redis import Redis

from fairlane.broker.app import lane_queue, make_app
from fairlane.config.loader import load_settings

TASK, QUEUE, DONE = "bench.noop", "bench.noop", "bench:done"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--ready-file", type=Path, required=True)
    options = parser.parse_args()
    settings = load_settings(options.config, environ={})
    app = make_app(settings, "bench")
    app.conf.task_queues = [lane_queue(QUEUE)]
    redis, counter = Redis.from_url(settings.redis.url), itertools.count(1)
    state = {"target": 0}

    @app.task(name=TASK)
    def noop(n: int) -> None:
        if n == 0:
            state["target"] = int(redis.get(f"{DONE}:target") or 0)
            state["start"] = state.get("end", 0)
        done = next(counter)
        if done - state.get("start", 0) == state["target"]:
            state["end"] = done
            redis.set(DONE, 1)

    def ready(**_: Any) -> None:
        options.ready_file.write_text("{}")

    signals.worker_ready.connect(ready, weak=False)
    app.worker_main(
        [
            "worker",
            "--without-gossip",
            "--without-mingle",
            "--pool=threads",
            f"--concurrency={settings.worker.slots}",
            "--loglevel=WARNING",
        ]
    )


if __name__ == "__main__":
    main()
