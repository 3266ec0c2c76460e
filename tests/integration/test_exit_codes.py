"""Exit codes of roles: 0 after each signal that asks for an end, whenever it comes."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane.config.environment import child_environment
from tests.support.cluster import Cluster, cluster, numbered
from tests.support.wait import wait_until

ENDED_S = 20.0


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("codes"), workers=1, slots=10) as made:
        made.process("worker-1").kill(signal.SIGTERM)
        assert made.process("worker-1").join(ENDED_S)
        yield made


def start(deployment: Cluster, module: str, ready: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, "--ready-file", str(ready)],
        env=child_environment(deployment.stack.environment),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT])
def test_a_worker_that_is_asked_to_end_finishes_its_calls_and_ends_with_0(
    deployment: Cluster, number: signal.Signals, tmp_path: Path
) -> None:
    model = deployment.new_model(latency_ms=700)
    with start(deployment, "fairlane_workers", tmp_path / "ready") as worker:
        wait_until((tmp_path / "ready").exists, timeout=30)
        run = deployment.client.submit(numbered(5), "question {{ n }}", model=f"sim:{model}")
        wait_until(lambda: run.status().in_flight == 5)
        worker.send_signal(number)
        _, said = worker.communicate(timeout=ENDED_S)
    assert worker.returncode == 0, said.decode()[-2000:]
    assert (run.status().items_done, deployment.served(model).requests) == (5, 5)


@pytest.mark.parametrize("module", ["fairlane_scheduler", "fairlane_workers"])
@pytest.mark.parametrize("after_s", [0.15, 0.4, 0.8, 1.2])
def test_a_role_that_is_asked_to_end_while_it_starts_ends_with_0_and_no_traceback(
    deployment: Cluster, module: str, after_s: float, tmp_path: Path
) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        with start(deployment, module, tmp_path / "ready") as process:
            try:
                process.wait(after_s)
            except subprocess.TimeoutExpired:
                process.send_signal(number)
            _, said = process.communicate(timeout=ENDED_S)
        assert process.returncode == 0, (number, said.decode()[-2000:])
        assert b"Traceback" not in said
