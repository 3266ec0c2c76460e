"""The runbooks' commands run as written, in their order, against a deployment and its restored Redis."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from fairlane.embedded.ports import free_ports
from fairlane.embedded.servers import find_server
from tests.support.commands_on_path import put_on_path
from tests.support.documents import ROOT, blocks
from tests.support.running_stack import run, running_stack
from tests.support.wait import wait_until

PAGE = ROOT / "docs" / "runbooks.md"
SECTIONS = ("Back up Redis", "Size Redis", "Upgrade during a run", "Incidents")
ITEMS, ANSWERED = 2000, 20
SIMULATOR = "[models.slow]\nlatency_ms = 20\n"
LIMIT = ["fairlane", "lanes", "set", "sim:slow", "--requests-per-minute"]
PORT = "6390"
"""The port of the page's restored Redis."""


def shell(text: str, directory: Path, environment: Mapping[str, str]) -> None:
    """Run a block; each of its commands must succeed."""
    run(["bash", "-euo", "pipefail", "-c", text], directory, environment, timeout=150.0)


def status(directory: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """The run, as `fairlane status` shows it."""
    found: dict[str, Any] = json.loads(
        run(["fairlane", "status", environment["RUN"], "--json"], directory, environment)
    )
    return found


@contextmanager
def restored(directory: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """The URL of the Redis that the page's commands start, on a port that is free here."""
    port = next(free_ports())
    try:
        for block in blocks(PAGE, "bash", "Restore Redis"):
            shell(block.text.replace(PORT, str(port)), directory, environment)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        with suppress(RedisConnectionError), Redis(port=port) as redis:
            redis.shutdown(nosave=True)


@pytest.mark.timeout(500)
@pytest.mark.slow(seconds=90)
def test_the_runbooks_run_as_written(tmp_path: Path) -> None:
    tools = put_on_path(tmp_path / "bin", find_server().command[0])
    simulator = tmp_path / "simulator.toml"
    simulator.write_text(SIMULATOR, encoding="utf-8")
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(ITEMS)), encoding="utf-8")
    up = ["fairlane", "up", "--schedulers", "2", "--simulate-config", simulator.name]

    with running_stack(up, tmp_path, environment=tools) as environment:
        submit = ["fairlane", "submit", "-", "--prompt", "{{ n }}", "--model", "sim:slow", "--json"]
        shell(f"echo '{{\"n\": 0}}' | {shlex.join([*submit, '--wait'])}", tmp_path, environment)
        run([*LIMIT, "240"], tmp_path, environment)  # the first run has made the lane
        submit[2] = "rows.jsonl"
        submitted = json.loads(run(submit, tmp_path, environment))
        environment |= {"RUN": submitted["run"], "LANE": "sim:slow"}
        wait_until(
            lambda: status(tmp_path, environment)["items_done"] >= ANSWERED, timeout=60.0, interval=0.5
        )
        for section in SECTIONS:
            for block in blocks(PAGE, "bash", section):
                shell(block.text, tmp_path, environment)
        assert ANSWERED < status(tmp_path, environment)["items_done"] < ITEMS

    with restored(tmp_path, environment) as url:
        again = [*up, "--redis", url, "--data-dir", "again"]
        with running_stack(again, tmp_path, environment=tools) as found:
            found |= {"RUN": submitted["run"]}
            run([*LIMIT, "60000"], tmp_path, found)
            run(["fairlane", "watch", found["RUN"]], tmp_path, found, timeout=100.0)
            ended = status(tmp_path, found)
            run(["fairlane", "doctor"], tmp_path, found)
            assert found["RUN"] in run(["fairlane", "runs"], tmp_path, found)
    assert (ended["state"], ended["items_done"], ended["by_state"]) == (
        "completed",
        ITEMS,
        {"succeeded": ITEMS},
    )
