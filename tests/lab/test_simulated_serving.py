"""The simulated provider runs beside a test, as a fixture, and as a process."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from fairlane.embedded.processes import wait_until
from fairlane.testing import ServedProvider, SimulatedModel, SimulatorConfig, fixtures, serve_in_thread

simulator_config = fixtures.simulator_config
simulated_provider = fixtures.simulated_provider

CONFIG = SimulatorConfig(models={"fast": SimulatedModel(latency_ms=0)})
COMMAND = [sys.executable, "-m", "fairlane.cli", "simulate"]


def test_the_fixture_serves_a_model_without_latency(simulated_provider: ServedProvider) -> None:
    call = {"model": "fast", "messages": [{"role": "user", "content": "Why?"}]}
    assert httpx.post(f"{simulated_provider.base_url}/chat/completions", json=call).status_code == 200
    assert simulated_provider.stats().models["fast"].completed == 1


def test_two_providers_run_side_by_side() -> None:
    with serve_in_thread(CONFIG) as one, serve_in_thread(CONFIG) as other:
        assert one.url != other.url
        assert (
            httpx.get(f"{one.url}/healthz").status_code
            == httpx.get(f"{other.url}/healthz").status_code
            == 200
        )


def test_after_the_block_the_port_is_closed() -> None:
    with serve_in_thread(CONFIG) as served:
        url = served.url
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/healthz")


def test_a_port_that_is_taken_is_an_error() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(OSError, match="address"),
        serve_in_thread(CONFIG, port=taken.getsockname()[1]),
    ):
        pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_writes_its_address_and_ends_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    ready, toml = tmp_path / "ready.json", tmp_path / "simulator.toml"
    toml.write_text("[models.slow]\n", encoding="utf-8")
    command = [*COMMAND, "--config", str(toml), "--port", "0", "--ready-file", str(ready)]
    with subprocess.Popen(command) as process:
        try:
            assert wait_until(ready.exists, 30)
            document = json.loads(ready.read_text(encoding="utf-8"))
            assert document == {
                "base_url": f"{document['url']}/v1",
                "url": document["url"],
                "pid": process.pid,
            }
            assert list(httpx.get(f"{document['url']}/stats").json()["models"]) == ["slow"]
            os.kill(process.pid, number)
            assert process.wait(10) == 0
            assert not ready.exists()
        finally:
            process.kill()


def test_a_process_with_a_wrong_configuration_reports_the_error(tmp_path: Path) -> None:
    toml = tmp_path / "simulator.toml"
    toml.write_text("[models.fast]\nlatncy_ms = 3\n", encoding="utf-8")
    ended = subprocess.run([*COMMAND, "--config", str(toml)], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "latency_ms" in ended.stderr
