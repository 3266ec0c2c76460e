"""All of Fairlane on one machine, as child processes that start and stop together."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from fairlane.core.errors import ConfigurationError, LocalStackError
from fairlane.core.redaction import mask_text
from fairlane.embedded.guard import Guard
from fairlane.embedded.locks import DirectoryLock
from fairlane.embedded.ports import LOOPBACK, answers, is_free, preferred_or_free
from fairlane.embedded.private import make_private
from fairlane.embedded.processes import (
    STOP_TIMEOUT_S,
    Checkpoint,
    Process,
    Spawn,
    describe_exit,
    no_checkpoint,
    stop_all,
)
from fairlane.embedded.server import EmbeddedRedis, ping
from fairlane.local.plan import StackPlan

START_TIMEOUT_S = 60.0
PORT_TRIES = 20
REDIS, SIMULATOR, FLOWER = "redis", "simulator", "flower"


@dataclass(frozen=True, slots=True)
class Death:
    """A child that ended unexpectedly."""

    name: str
    code: int
    log: Path

    def __str__(self) -> str:
        return f"{self.name} {describe_exit(self.code)} (see {self.log})"


class Stack:
    """Runs a `StackPlan`; as a context manager it is up inside the block, and down after it.

    Processes are called ``redis`` (if embedded), ``simulator``, ``scheduler-1`` …, ``worker-1`` … and
    ``flower``. They end with this process, even after kill -9. It calls ``report`` with each message, and
    ``checkpoint`` during every wait, which raises to stop. ``spawn`` starts all processes except Redis.
    ``redis`` is the embedded server, if any. ``simulator_url`` is the ``base_url`` for a connection, and
    ``flower_url`` is for a browser; each is ``None`` if the plan has no such process.
    """

    def __init__(
        self,
        plan: StackPlan,
        *,
        report: Callable[[str], None] = lambda _: None,
        checkpoint: Checkpoint = no_checkpoint,
        spawn: Spawn = subprocess.Popen,
    ) -> None:
        self.plan = plan
        self._spawn = spawn
        self._report, self._checkpoint = report, checkpoint
        self._guard = Guard()
        self._lock = DirectoryLock(plan.data_dir)
        self.redis: EmbeddedRedis | None = None
        self._roles: list[Process] = []
        self._reported_deaths: set[int] = set()
        self.simulator_url: str | None = None
        self.flower_url: str | None = None

    @property
    def redis_url(self) -> str:
        """The URL of Redis. Raises `LocalStackError` before `start`."""
        if self.plan.redis_url is not None:
            return self.plan.redis_url
        if self.redis is None:
            raise LocalStackError(REDIS, "has not been started")
        return self.redis.url

    @property
    def processes(self) -> dict[str, Process]:
        """Every child by name, in the order of start."""
        redis = [self.redis.process] if self.redis is not None else []
        return {process.name: process for process in (*redis, *self._roles)}

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by name."""
        return {name: process.pid for name, process in self.processes.items()}

    @property
    def environment(self) -> dict[str, str]:
        """Variables that connect another process, such as a client, to this stack."""
        return self.plan.environment(self.redis_url, self.simulator_url)

    def start(self) -> None:
        """Start everything, and return once all of it answers. If a process fails to start, stops all and
        raises `LocalStackError` with the end of its log.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        try:
            self._start_redis()
            if self.plan.simulate:
                self._start_simulator(deadline)
            self._start_roles(deadline)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop everything in reverse order, each role within the stop timeout; harmless if none runs."""
        try:
            stop_all(self._roles, STOP_TIMEOUT_S, self._report)
            if self.redis is not None and self.redis.is_running:
                self._report("stopping redis")
                self.redis.stop(STOP_TIMEOUT_S)
        finally:
            if self.redis is not None:
                self.redis.stop(0.0)
            self._lock.release()
            self._guard.close()

    def poll(self) -> list[Death]:
        """Children that died since the last call."""
        dead = []
        for name, process in self.processes.items():
            code = process.returncode
            if code is not None and process.pid not in self._reported_deaths:
                self._reported_deaths.add(process.pid)
                dead.append(Death(name, code, process.log))
        return dead

    def restart(self, name: str) -> None:
        """Start the dead child ``name`` again, at its address; returns at once, except for Redis.

        Raises `LocalStackError` if there is no such child, if it runs, or if Redis does not come back.
        """
        process = self.processes.get(name)
        if process is None:
            raise LocalStackError(name, f"is not part of this stack: {', '.join(self.processes)}")
        if name == REDIS and self.redis is not None:
            self.redis.start()
        else:
            process.start()

    def __enter__(self) -> Stack:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start_redis(self) -> None:
        if self.plan.redis_url is None:
            self.redis = EmbeddedRedis(
                self.plan.data_dir,
                preferred_port=self.plan.redis_port,
                guard=self._guard,
                checkpoint=self._checkpoint,
            ).start()
            self._report(f"redis: {self.redis.program} at {self.redis.url}")
            return
        shown = mask_text(self.plan.redis_url)
        try:
            problem = ping(self.plan.redis_url)
        except ValueError as error:
            raise ConfigurationError("redis.url", shown, f"is no Redis URL: {error}") from error
        if problem is not None:
            remedy = "Start that server, or leave the URL out and one is started here"
            raise LocalStackError(REDIS, f"nothing answers at {shown}: {problem.rstrip('.')}. {remedy}")
        self._lock.acquire()
        self._report(f"redis: {shown}")

    def _start_simulator(self, deadline: float) -> None:
        ready_file = self.plan.ready_file(SIMULATOR)
        for port in islice(preferred_or_free(self.plan.simulator_port), PORT_TRIES):
            command = self.plan.simulator_command(SIMULATOR, port)
            process = self._add(SIMULATOR, SIMULATOR, command, ready_file)
            process.start()
            try:
                process.wait_ready(_left(deadline))
                break
            except LocalStackError:
                if process.is_running or is_free(port):
                    raise
                self._roles.remove(process)  # another process took the port first, so it ended
        else:
            raise LocalStackError(SIMULATOR, f"found {PORT_TRIES} ports taken, one after the other")
        self.simulator_url = str(json.loads(ready_file.read_text(encoding="utf-8"))["base_url"])
        self._report(f"simulated provider: {self.simulator_url}")

    def _start_roles(self, deadline: float) -> None:
        started = [*self._add_roles("scheduler", self.plan.schedulers, self.plan.scheduler_command)]
        started += self._add_roles("worker", self.plan.workers, self.plan.worker_command)
        probes: dict[str, Callable[[], bool]] = {}
        if self.plan.flower:
            port = next(preferred_or_free(self.plan.flower_port))
            self.flower_url = f"http://{LOOPBACK}:{port}"
            started.append(self._add(FLOWER, FLOWER, self.plan.flower_command(port), None))
            probes[FLOWER] = partial(answers, LOOPBACK, port)
        for process in started:
            process.start()
        for process in started:
            process.wait_ready(_left(deadline), probes.get(process.name))
            self._report(f"{process.name}: pid {process.pid}{_metrics(process)}")

    def _add_roles(self, role: str, count: int, command: Callable[[str], list[str]]) -> list[Process]:
        names = [f"{role}-{number}" for number in range(1, count + 1)]
        return [self._add(name, role, command(name), self.plan.ready_file(name)) for name in names]

    def _add(self, name: str, role: str, command: list[str], ready_file: Path | None) -> Process:
        if ready_file is not None:
            make_private(ready_file.parent)
        process = Process(
            name,
            command,
            role=role,
            log=self.plan.log(name),
            guard=self._guard,
            env=self.environment,
            ready_file=ready_file,
            checkpoint=self._checkpoint,
            spawn=self._spawn,
        )
        self._roles.append(process)
        return process


def _metrics(process: Process) -> str:
    """``, URL/metrics`` with the URL that a process reports in its ready file; empty without one."""
    try:
        report = json.loads(process.ready_file.read_text(encoding="utf-8")) if process.ready_file else {}
    except (OSError, ValueError):
        return ""
    url = report.get("metrics") if isinstance(report, dict) else None
    return f", {url}/metrics" if url else ""


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 1.0)
