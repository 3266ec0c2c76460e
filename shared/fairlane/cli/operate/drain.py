"""``fairlane drain``: workers take nothing new, finish what they have, and then stay idle or end."""

import signal
import threading
import time
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Annotated

import typer

from fairlane.cli.failures import FAILED, Interrupted, interruptible
from fairlane.cli.invocation import Invocation, with_settings
from fairlane.cli.lanes.workers import worker_state
from fairlane.cli.output import complain, say
from fairlane.client.deployment import Deployment
from fairlane.core.errors import ConfigurationError, WorkerNotFound
from fairlane.store.write.workers import Beat, WorkerRequest

app = typer.Typer()

LOOK_S = 0.2
_ASKED = {
    WorkerRequest.IDLE: "take nothing new",
    WorkerRequest.STOP: "take nothing new, and to end once it is idle",
    WorkerRequest.WORK: "take work again",
}
STOPS = tuple(  # Windows has no SIGHUP
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


@app.command()
@with_settings
def drain(
    invocation: Invocation,
    workers: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[WORKER]...",
            help="Names, NAME@HOST, patterns of either, or ids; `fairlane workers` lists them.",
        ),
    ] = None,
    host: Annotated[str | None, typer.Option(help="All workers of this host or pattern of hosts.")] = None,
    everyone: Annotated[bool, typer.Option("--all", help="All workers.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="End each process once it is idle.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Have them take work again.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Return once all are idle, or gone.")] = False,
    timeout: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="How long to wait at most; then it fails.")
    ] = None,
) -> None:
    """Drain workers: they finish their calls, however long that takes, and take no new ones.

    Interrupting the command does not stop the drain. SIGTERM stops a worker, too, but gives its calls only
    `worker.shutdown_grace_seconds`. A scheduler has nothing to drain: SIGTERM makes its standby lead at once.
    """
    if undo and (stop or wait):
        raise ConfigurationError("--undo", True, "goes with neither --stop nor --wait", "Leave those out.")
    wish = WorkerRequest.WORK if undo else WorkerRequest.STOP if stop else WorkerRequest.IDLE
    with invocation.deployment() as deployment, interruptible(*STOPS) as check:
        chosen = choose(deployment.beats(), workers or [], host, everyone=everyone)
        asked = [beat for beat in chosen if deployment.workers.ask(deployment.redis, beat.worker, wish)]
        for beat in asked:
            say(f"{beat.info.name} on {beat.info.host} is asked to {_ASKED[wish]}")
        if wait and not _wait(deployment, asked, timeout, check):
            complain(f"not all workers were idle after {timeout:g} s; `fairlane workers` shows which")
            raise typer.Exit(FAILED)


def choose(beats: Sequence[Beat], names: Sequence[str], host: str | None, *, everyone: bool) -> list[Beat]:
    """The selected workers. Raises `WorkerNotFound`, and `ConfigurationError` if nothing selects any."""
    if not (names or host or everyone):
        remedy = "Name workers, or give --host or --all."
        raise ConfigurationError("WORKER", "", "names no worker", remedy)
    known = sorted(beat.info.name for beat in beats)
    for name in names:
        if not any(_is_called(beat, name) for beat in beats):
            raise WorkerNotFound(name, known)
    if host and not any(fnmatchcase(beat.info.host, host) for beat in beats):
        raise WorkerNotFound(f"on {host}", known)
    if not beats:
        raise WorkerNotFound("*", known)
    return [
        beat
        for beat in beats
        if everyone
        or (host is not None and fnmatchcase(beat.info.host, host))
        or any(_is_called(beat, name) for name in names)
    ]


class Drained:
    """Reports draining: a line for each worker that is done. `look` is one pass."""

    def __init__(self, asked: Sequence[Beat], silent_ms: float, report: Callable[[str], None]) -> None:
        self._left = {beat.worker: beat.info.name for beat in asked}
        self._silent_ms, self._report = silent_ms, report
        self._since_ms: int | None = None
        self._late: set[str] = set()

    def look(self, beats: Sequence[Beat], now_ms: int) -> bool:
        """Whether all are idle, gone or silent."""
        self._since_ms = now_ms if self._since_ms is None else self._since_ms
        found = {beat.worker: beat for beat in beats}
        for worker, name in list(self._left.items()):
            beat = found.get(worker)
            state = "gone" if beat is None else worker_state(beat, now_ms, self._silent_ms)
            if state in ("gone", "silent", "drained"):
                self._report(f"{name} is {state}")
                del self._left[worker]
            elif state == "alive" and now_ms - self._since_ms > self._silent_ms and worker not in self._late:
                self._report(f"{name} does not respond: it may be of an earlier version, which SIGTERM stops")
                self._late.add(worker)
        return not self._left


def _wait(
    deployment: Deployment, asked: Sequence[Beat], timeout: float | None, check: Callable[[], None]
) -> bool:
    progress = Drained(asked, deployment.settings.scheduler.worker_timeout_seconds * 1000, say)
    until = None if timeout is None else time.monotonic() + timeout
    pause = threading.Event()
    try:
        while not progress.look(deployment.beats(), deployment.now_ms()):
            check()
            if until is not None and time.monotonic() >= until:
                return False
            pause.wait(LOOK_S)
    except Interrupted:
        say("the workers continue to drain; `fairlane drain --undo` has them take work again")
        raise
    return True


def _is_called(beat: Beat, name: str) -> bool:
    called = beat.info.name, f"{beat.info.name}@{beat.info.host}"
    return name in (beat.worker, *called) or any(fnmatchcase(each, name) for each in called)
