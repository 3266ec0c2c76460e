"""A worker whose event loop stands still leaves its lanes to others, and serves again once the loop turns."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from fairlane.core.events import Event
from fairlane.embedded.guard import Guard
from fairlane.embedded.processes import Process
from tests.support.cluster import all_succeeded, cluster, numbered
from tests.support.wait import wait_until

STANDS = """
import signal, time
from fairlane.telemetry.log_stream import install_log_streams
from fairlane_workers import command, engine

install_log_streams()
engines, make = [], engine.Engine.__init__

def noted(self, *given, **named):
    make(self, *given, **named)
    engines.append(self)

engine.Engine.__init__ = noted
signal.signal(signal.SIGUSR2, lambda *_: engines[0]._loop.call_soon_threadsafe(time.sleep, 12))
raise SystemExit(command.main(["--name", "stands"]))
"""


def test_jobs_of_a_worker_with_a_blocked_event_loop_move_to_others(tmp_path: Path) -> None:
    with cluster(tmp_path, workers=1, slots=10) as made:
        guard = Guard()
        log = tmp_path / "data" / "logs" / "stands.log"
        environment = {**made.stack.environment, "FAIRLANE_WORKER__SLOTS": "10"}
        worker = Process(
            "stands", [sys.executable, "-P", "-c", STANDS], log=log, guard=guard, env=environment
        )
        worker.start()
        try:
            made.wait_ready(2)
            model = made.new_model(latency_ms=20)
            worker.kill(signal.SIGUSR2)
            made.wait_logged(Event.LOOP_STANDS)
            run = made.client.submit(numbered(100), "question {{ n }}", model=f"sim:{model}")
            all_succeeded(run, timeout=8)
            assert not made.logged(Event.LOOP_TURNS), "the other worker has done it all"

            made.wait_logged(Event.LOOP_TURNS)
            wait_until(lambda: len(made.beats()) == 2, timeout=10)
            all_succeeded(made.client.submit(numbered(100), "again {{ n }}", model=f"sim:{model}"))
            assert made.served(model).requests == 200
            worker.kill(signal.SIGTERM)
            assert worker.join(15)
        finally:
            guard.close()
