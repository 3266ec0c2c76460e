"""Keys in a file and from a command are replaced while a run goes on: no restart, no lost attempt."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

from fairlane.core.events import Event
from fairlane.testing import SimulatedModel, SimulatorConfig, serve_in_thread
from tests.support.cluster import all_succeeded, cluster, numbered
from tests.support.wait import wait_until

OLD, NEW = "sk-old-c0ffee-1234567890", "sk-new-badcafe-1234567890"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("place", ["file", "command"])
def test_a_run_goes_on_over_a_change_of_its_key(tmp_path: Path, place: str) -> None:
    key = tmp_path / "key"
    key.write_text(OLD)
    command = [sys.executable, "-c", f"print(open({str(key)!r}).read())"]
    where = f'api_key_file = "{key}"' if place == "file" else f"api_key_command = {json.dumps(command)}"
    model = SimulatedModel(latency_ms=300)
    with serve_in_thread(SimulatorConfig(models={"m": model}, api_key=SecretStr(OLD))) as provider:
        config = f'[connections.c]\nprotocol = "openai"\nbase_url = "{provider.base_url}"\n{where}\n'
        config += '[lanes."c:m"]\nmax_concurrency = 4\n'
        with cluster(tmp_path, config=config, workers=1) as deployment:
            run = deployment.client.submit(numbered(120), "question {{ n }}", model="c:m")
            wait_until(lambda: run.status().jobs_done >= 20, timeout=60)
            key.write_text(NEW)
            provider.change_key(NEW)
            all_succeeded(run)
            assert deployment.lanes.view("c:m").parked is None
            assert not deployment.logged(Event.LANE_PARKED)
            assert {item.attempts for item in run.results()} == {1}
            changed = deployment.logged(Event.CREDENTIAL_CHANGED)
            assert bool(changed) == (place == "file")
        left = b"".join(
            file.read_bytes() for file in (deployment.directory / "data").rglob("*") if file.is_file()
        )
    assert not any(each.encode() in left for each in (OLD, NEW))


@pytest.mark.timeout(180)
def test_a_lane_that_a_command_s_wrong_key_parked_opens_by_itself_and_a_slow_command_harms_no_other(
    tmp_path: Path,
) -> None:
    key, file = tmp_path / "key", tmp_path / "of-the-file"
    for each in (key, file):
        each.write_text(NEW)
    command = [sys.executable, "-c", f"print(open({str(key)!r}).read())"]
    hanging = [sys.executable, "-c", "import time; time.sleep(25)"]
    with serve_in_thread(SimulatorConfig(models={"m": SimulatedModel()}, api_key=SecretStr(OLD))) as provider:
        places = {
            "c": f"api_key_command = {json.dumps(command)}",
            "f": f'api_key_file = "{file}"',
            "slow": f"api_key_command = {json.dumps(hanging)}",
        }
        config = "".join(
            f'[connections.{name}]\nprotocol = "openai"\nbase_url = "{provider.base_url}"\n{place}\n'
            for name, place in places.items()
        )
        with cluster(tmp_path, config=config, workers=2) as deployment:
            runs = [
                deployment.client.submit(numbered(30), "question {{ n }}", model=f"{name}:m")
                for name in ("c", "f")
            ]
            parked = {"c:m", "f:m"}
            wait_until(
                lambda: parked <= {line["lane"] for line in deployment.logged(Event.LANE_PARKED)}, timeout=60
            )
            key.write_text(OLD)
            file.write_text(OLD)
            for run in runs:
                all_succeeded(run)
            assert len(deployment.logged(Event.LANE_REOPENED)) >= 2
