"""Starts `fairlane up` as users do, and programs that use it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from fairlane.config.environment import process_environment
from tests.support.wait import wait_until

COME_UP_S, STEP_S, GO_DOWN_S = 60.0, 60.0, 30.0


@contextmanager
def running_stack(
    command: Sequence[str],
    directory: Path,
    *,
    workplace: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[dict[str, str]]:
    """Run a stack during the block; yields the environment with which other processes use it.

    It starts in ``workplace``, by default ``directory``; its log is in ``directory``. It must exit with 0.
    """
    shown = {name: value for name, value in process_environment().items() if not name.startswith("FAIRLANE_")}
    shown |= environment or {}
    shown["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), shown["PATH"]])
    ready = directory / "ready.json"
    with (directory / "up.log").open("wb") as log:
        stack = subprocess.Popen(
            [*command, "--ready-file", str(ready)],
            cwd=workplace or directory,
            env=shown,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            wait_until(lambda: ready.exists() or stack.poll() is not None, timeout=COME_UP_S)
            assert stack.poll() is None, (directory / "up.log").read_text()
            yield {**shown, "FAIRLANE_REDIS__URL": json.loads(ready.read_text())["redis_url"]}
        finally:
            stack.send_signal(signal.SIGINT)
            try:
                stack.wait(GO_DOWN_S)
            except subprocess.TimeoutExpired:
                stack.kill()
                stack.wait()
    assert stack.returncode == 0


def run(
    command: Sequence[str], directory: Path, environment: Mapping[str, str], timeout: float = STEP_S
) -> str:
    """The standard output of a command that must succeed."""
    done = subprocess.run(
        command,
        cwd=directory,
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout
