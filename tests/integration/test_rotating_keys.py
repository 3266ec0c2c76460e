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
