"""Faults of processes: killed, stopped, ended, started with another clock or another version."""

from __future__ import annotations

import atexit
import functools
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.faults.kinds import ANY, SCHEDULERS, WORKERS
from tests.faults.schedule import Timed
from tests.faults.stage import Stage, fault
from tests.support.next_version import NextVersion, make_next_version

DAY_S = 86_400
SKEWED = Path(__file__).with_name("skewed")


@fault("worker_kill", "leader_kill")
def kill(stage: Stage, timed: Timed) -> Iterator[tuple[str, ...]]:
    """SIGKILL; a supervisor starts it again later."""
    hit = stage.hit(timed)
    yield from _killed(stage, hit)


@fault("machine_pause")
def pause_machine(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """Everything stands still, as a virtual machine that is moved does; only time and the provider go on."""
    server, everybody = stage.deployment.server, (*SCHEDULERS, *WORKERS)
    for name in everybody:
        stage.deployment.processes[name].kill(signal.SIGSTOP)
    server.kill(signal.SIGSTOP)
    yield (ANY,)
    server.kill(signal.SIGCONT)
    for name in everybody:
        stage.deployment.processes[name].kill(signal.SIGCONT)


@fault("workers_kill")
def kill_workers(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """All workers at once."""
    yield from _killed(stage, WORKERS)


@fault("schedulers_kill")
def kill_schedulers(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """Both schedulers at once."""
    yield from _killed(stage, SCHEDULERS)


def _killed(stage: Stage, hit: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name in hit:
        stage.deployment.kill(name)
    yield hit
    for name in hit:
        stage.deployment.revive(name)


@fault("worker_term", "leader_term")
def end(stage: Stage, timed: Timed) -> Iterator[tuple[str, ...]]:
    """SIGTERM, and a start some time after its end."""
    hit = stage.hit(timed)
    for name in hit:
        stage.deployment.stop(name)
    yield hit
    for name in hit:
        stage.deployment.revive(name)


@fault("worker_stop", "worker_nap", "leader_stop")
def stop(stage: Stage, timed: Timed) -> Iterator[tuple[str, ...]]:
    """SIGSTOP, and SIGCONT in the end."""
    yield from _stopped(stage, stage.hit(timed))


def _stopped(stage: Stage, hit: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name in hit:
        stage.deployment.processes[name].kill(signal.SIGSTOP)
    yield hit
    for name in hit:
        stage.deployment.processes[name].kill(signal.SIGCONT)


@fault("workers_stop")
def stop_workers(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """All workers at once, while the scheduler goes on granting: their permits pile up."""
    yield from _stopped(stage, WORKERS)


@fault("clock")
def skew(stage: Stage, timed: Timed) -> Iterator[tuple[str, ...]]:
    """Restart it with a clock that is off by days, and restart it with the right one in the end."""
    days = stage.rng.choice([-400, -3, 2, 400])
    env = {"PYTHONPATH": str(SKEWED), "SKEW_SECONDS": str(days * DAY_S)}
    yield from _restarted(stage, stage.hit(timed), env)


@fault("upgrade")
def upgrade(stage: Stage, timed: Timed) -> Iterator[tuple[str, ...]]:
    """Restart it as the next version, and as this one again in the end."""
    yield from _restarted(stage, stage.hit(timed), _next_version().environment)


@functools.cache
def _next_version() -> NextVersion:
    folder = Path(tempfile.mkdtemp(prefix="fairlane-next-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return make_next_version(folder)


def _restarted(stage: Stage, hit: tuple[str, ...], env: dict[str, str]) -> Iterator[tuple[str, ...]]:
    for name in hit:
        stage.deployment.stop(name)
        stage.deployment.revive(name, env)
    yield hit
    for name in hit:
        stage.deployment.stop(name)
        stage.deployment.revive(name)
