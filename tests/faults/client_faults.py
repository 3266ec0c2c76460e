"""What clients and operators do in the middle of everything."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress

from fairlane.config.environment import process_environment
from fairlane.core.errors import FairlaneError
from fairlane.store.write.workers import WorkerRequest, Workers
from tests.faults.deployment import CLIENT
from tests.faults.kinds import ANY
from tests.faults.leftovers import KILLED
from tests.faults.runs import EXACT_PER_S, Watched
from tests.faults.schedule import Timed
from tests.faults.stage import Stage, fault
from tests.support.wait import wait_until

EXTRA_ROWS = 200
HEARD_S, LOOK_S = 3.0, 0.05
SUBMIT = """
import sys, threading
from fairlane import Client
def rows():
    for n in range(100_000):
        if n == 3000:
            print("under way", flush=True)
        if n >= 3000:
            threading.Event().wait(0.05)
        yield {"n": n}
with Client(team=sys.argv[2]) as client:
    client.submit(rows(), "killed {{ n }}", model=sys.argv[1], name="killed")
"""


@fault("client_killed")
def kill_client(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """A client dies while it uploads rows: no run comes of it."""
    environment = {**process_environment(), **stage.deployment.environment(CLIENT)}
    command = [sys.executable, "-P", "-c", SUBMIT, stage.workload.lane("a"), KILLED]
    client = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        yield (ANY,)
    finally:
        client.send_signal(signal.SIGKILL)
        client.communicate()


@fault("cancel")
def cancel(stage: Stage, timed: Timed) -> Iterator[tuple[str, ...]]:
    """A run is submitted, and cancelled in the end."""
    watched = stage.workload.submit_another(
        f"cancelled-{timed.at_s:g}", "red", "d", EXTRA_ROWS, {"ending": "cancelled"}
    )
    yield (ANY,)
    stage.insist(watched.run.cancel)


@fault("pause")
def pause(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """A run is paused, and resumed in the end."""
    watched, seen, over = stage.workload.watched["bounded"], list[float](), threading.Event()
    stage.insist(watched.run.pause)

    def look() -> None:
        # In a thread: a look takes long where another fault has stopped Redis.
        while not seen and not over.wait(LOOK_S):
            if _is_paused(watched):
                seen.append(stage.now)

    stage.beside(look)
    # Where nobody leads, it is paused later, at a time that nobody notes.
    with suppress(AssertionError):
        wait_until(lambda: bool(seen), HEARD_S)
    yield (ANY,)
    over.set()
    if seen:
        watched.paused.append((seen[0], stage.now))
    stage.insist(watched.resume)


def _is_paused(watched: Watched) -> bool:
    with suppress(FairlaneError):
        return watched.run.status().paused is not None
    return False


@fault("limit")
def limit(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """The exact lane's rate is lowered, and raised again in the end."""
    stage.workload.limit("a", EXACT_PER_S // 3, lambda: stage.now)
    yield (ANY,)
    stage.insist(lambda: stage.workload.limit("a", EXACT_PER_S, lambda: stage.now))


@fault("drain")
def drain(stage: Stage, timed: Timed) -> Iterator[tuple[str, ...]]:
    """A worker is drained, and put back to work in the end."""
    stage.insist(lambda: _ask(stage, timed.target, WorkerRequest.IDLE))
    yield stage.hit(timed)
    stage.insist(lambda: _ask(stage, timed.target, WorkerRequest.WORK))


def _ask(stage: Stage, name: str, wish: WorkerRequest) -> None:
    deployment = stage.deployment
    for beat in deployment.beats():
        if beat.info.name == name:
            Workers(deployment.keys).ask(deployment.redis, beat.worker, wish)
