"""A bare Celery worker whose task makes the call: threads, and one connection a thread.

It has Fairlane's broker settings, which are the fastest that Celery has on Redis.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from celery import signals
from redis import Redis

from fairlane.broker.app import lane_queue, make_app
from fairlane.config.loader import load_settings

TASK, QUEUE, DONE = "bench.call", "bench.call", "bench:called"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--ready-file", type=Path, required=True)
    options = parser.parse_args()
    settings, work = load_settings(options.config, environ={}), json.loads(options.work.read_text())
    app = make_app(settings, "bench")
    app.conf.task_queues = [lane_queue(QUEUE)]
    redis, ended, kept = Redis.from_url(settings.redis.url), itertools.count(1), threading.local()
    url, headers = urlsplit(work["base_url"]), {"authorization": f"Bearer {work['key']}"}
    succeeded = itertools.count(1)
    counted = {"succeeded": 0}

    @app.task(name=TASK)
    def call(prompt: str) -> None:
        body = {"model": work["model"], "messages": [{"role": "user", "content": prompt}], **work["params"]}
        connection = getattr(kept, "connection", None)
        if connection is None:
            connection = kept.connection = http.client.HTTPConnection(
                url.hostname or "", url.port, timeout=60
            )
        connection.request(
            "POST",
            f"{url.path}/chat/completions",
            json.dumps(body),
            {**headers, "content-type": "application/json"},
        )
        answer = connection.getresponse()
        if "choices" in json.loads(answer.read()):
            counted["succeeded"] = next(succeeded)
        if next(ended) == len(work["prompts"]):
            redis.set(DONE, counted["succeeded"])

    def ready(**_: Any) -> None:
        options.ready_file.write_text("{}")

    signals.worker_ready.connect(ready, weak=False)
    how = ["--without-gossip", "--without-mingle", "--pool=threads", "--loglevel=WARNING"]
    app.worker_main(["worker", *how, f"--concurrency={work['slots']}"])


if __name__ == "__main__":
    main()
