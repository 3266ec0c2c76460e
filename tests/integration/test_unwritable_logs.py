"""Roles whose log cannot be written, or is not read, start, serve runs and stop as others do."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairlane.config.environment import child_environment
from tests.support.cluster import Cluster, all_succeeded, cluster, numbered
from tests.support.wait import wait_until

ROLES = ("fairlane_scheduler", "fairlane_workers")
STOPPED_S = 20.0


class Full:
    """A log on a full disk."""

    def __init__(self) -> None:
        self.writer = os.open("/dev/full", os.O_WRONLY)

    def spoil(self) -> None:
        """It is full from the start."""

    def close(self) -> None:
        os.close(self.writer)


class Left(Full):
    """A pipe or a terminal whose reader leaves."""

    def __init__(self, open_pair: Callable[[], tuple[int, int]]) -> None:
        self._reader, self.writer = open_pair()

    def spoil(self) -> None:
        os.close(self._reader)


class Unread(Full):
    """A pipe whose reader has stopped reading."""

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()
        os.write(self.writer, b"j" * 65_536)

    def close(self) -> None:
        os.close(self._reader)
        super().close()


LOGS: dict[str, Callable[[], Full]] = {
    "full disk": Full,
    "closed pipe": lambda: Left(os.pipe),
    "closed terminal": lambda: Left(pty.openpty),
    "unread pipe": Unread,
}


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A deployment whose scheduler and worker have ended: the tests start their own."""
    with cluster(tmp_path_factory.mktemp("logs"), workers=1, slots=10) as made:
        for process in list(made.stack.processes.values()):
            if "scheduler" in process.name or "worker" in process.name:
                process.kill(signal.SIGTERM)
                assert process.join(STOPPED_S)
        yield made


@contextmanager
def role(
    deployment: Cluster, module: str, folder: Path, log: int | None
) -> Iterator[subprocess.Popen[bytes]]:
    """A role's process; without a ``log`` it says nothing."""
    ready, out = folder / f"{module}.ready", subprocess.DEVNULL if log is None else log
    environment = child_environment(deployment.stack.environment)
    command = [sys.executable, "-P", "-m", module, "--ready-file", str(ready)]
    # The session of its own has no controlling terminal, so a terminal that closes sends it no signal.
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
    ) as process:
        try:
            wait_until(lambda: ready.exists() or process.poll() is not None, timeout=30)
            assert process.poll() is None, f"{module} ended with {process.returncode}"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("kind", "spoiled"), [*((kind, "both") for kind in LOGS), *(("full disk", name) for name in ROLES)]
)
def test_a_run_completes_and_roles_end_normally(
    deployment: Cluster, kind: str, spoiled: str, tmp_path: Path
) -> None:
    model = deployment.new_model(latency_ms=5)
    log = LOGS[kind]()
    scheduler_log, worker_log = (log.writer if spoiled in (name, "both") else None for name in ROLES)
    with (
        role(deployment, ROLES[0], tmp_path, scheduler_log) as scheduler,
        role(deployment, ROLES[1], tmp_path, worker_log) as worker,
    ):
        log.spoil()
        all_succeeded(deployment.client.submit(numbered(60), "question {{ n }}", model=f"sim:{model}"))
        for process in (worker, scheduler):
            process.send_signal(signal.SIGTERM)
            assert process.wait(STOPPED_S) == 0
    log.close()
