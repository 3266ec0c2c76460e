"""Flower in front of a deployment of tests, as a process of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fairlane.embedded.guard import Guard
from fairlane.embedded.ports import LOOPBACK, answers, preferred_or_free
from fairlane.embedded.processes import Process
from tests.support.cluster import Cluster
from tests.support.wait import wait_until

UP_S, DOWN_S = 30.0, 10.0


@contextmanager
def front(deployment: Cluster, options: Sequence[str] = ()) -> Iterator[str]:
    """Where it answers; ``options`` are those of ``fairlane flower``."""
    port, guard = next(preferred_or_free(None)), Guard()
    process = Process(
        "flower",
        [*deployment.stack.plan.flower_command(port), *options],
        log=deployment.directory / "data" / "logs" / "flower.log",
        guard=guard,
        env=deployment.stack.environment,
    )
    process.start()
    try:
        wait_until(lambda: answers(LOOPBACK, port), timeout=UP_S)
        yield f"http://{LOOPBACK}:{port}"
    finally:
        process.ask_to_stop()
        if not process.join(DOWN_S):
            process.kill()
            process.join(DOWN_S)
        guard.close()
