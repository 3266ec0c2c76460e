"""A credential reaches the provider and nothing else: no key of Redis, no message, no log line holds it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from pydantic import SecretStr

from fairlane.testing import ServedProvider, SimulatedModel, SimulatorConfig, serve_in_thread
from tests.support.cluster import Cluster, all_succeeded, cluster, numbered
from tests.support.wait import wait_until

RIGHT, WRONG = "sk-right-c0ffee-1234567890", "sk-wrong-badcafe-1234567890"


@dataclass(frozen=True, slots=True)
class Locked:
    """A deployment with connections to a provider that demands a key: right, wrong, and without one."""

    deployment: Cluster
    provider: ServedProvider


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    models = {"m": SimulatedModel(latency_ms=10)}
    with serve_in_thread(SimulatorConfig(models=models, api_key=SecretStr(RIGHT))) as provider:
        config = "".join(
            f'[connections.{name}]\nprotocol = "{protocol}"\nbase_url = "{provider.base_url}"\n'
            f'api_key_env = "{name.upper()}_API_KEY"\n'
            for name, protocol in (
                ("right", "openai"),
                ("claude", "anthropic"),
                ("wrong", "openai"),
                ("none", "openai"),
            )
        )
        env = {"RIGHT_API_KEY": RIGHT, "CLAUDE_API_KEY": RIGHT, "WRONG_API_KEY": WRONG}
        directory = tmp_path_factory.mktemp("locked")
        with cluster(directory, models, config=config, env=env, workers=1) as deployment:
            yield Locked(deployment, provider)


def everything_written(deployment: Cluster) -> bytes:
    """Everything that was written to Redis, messages and events included, and all logs."""
    data = deployment.directory / "data"
    return b"".join(file.read_bytes() for pattern in ("*.aof", "*.log") for file in data.rglob(pattern))


@pytest.mark.parametrize(("model", "lane"), [("right:m", "right:m"), ("claude:m", "claude:m")])
def test_the_key_of_a_connection_opens_its_provider(locked: Locked, model: str, lane: str) -> None:
    run = locked.deployment.client.submit(numbered(10), "question {{ n }}", model=model)
    all_succeeded(run)
    assert [each.lane for each in run.status().lanes] == [lane]
    written = everything_written(locked.deployment)
    assert run.id.encode() in written
    assert RIGHT.encode() not in written


@pytest.mark.parametrize("connection", ["wrong", "none"])
def test_a_wrong_key_parks_the_lane_after_one_call_and_is_reported_nowhere(
    locked: Locked, connection: str
) -> None:
    deployment, lane = locked.deployment, f"{connection}:m"
    before = locked.provider.stats().unauthorized
    deployment.lanes.limit(lane, {"max_concurrency": 1})
    run = deployment.client.submit(numbered(10), "question {{ n }}", model=lane, check=False)
    wait_until(lambda: deployment.lanes.view(lane).parked)
    assert deployment.lanes.view(lane).parked == "Incorrect API key provided"
    assert locked.provider.stats().unauthorized == before + 1
    deployment.lanes.resume(lane)
    wait_until(
        lambda: locked.provider.stats().unauthorized == before + 2 and deployment.lanes.view(lane).parked
    )
    assert run.status().jobs_done == 0
    run.cancel()
    run.wait(timeout=60.0)
    assert WRONG.encode() not in everything_written(deployment)
