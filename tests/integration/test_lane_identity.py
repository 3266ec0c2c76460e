"""Two names for one account are one lane; a key that is replaced while all runs costs a lane nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pydantic import SecretStr

from fairlane.core.events import Event
from fairlane.embedded.guard import Guard
from fairlane.embedded.processes import Process
from fairlane.store.read.reading import LaneDirectory
from fairlane.store.write.audit import Act, AuditLog
from fairlane.store.write.scopes import Scopes
from fairlane.testing import ServedProvider, SimulatedModel, SimulatorConfig, serve_in_thread
from tests.support.cluster import Cluster, all_succeeded, cluster, numbered
from tests.support.wait import wait_until

OLD, NEW = "sk-old-c0ffee-1234567890", "sk-new-badcafe-1234567890"
A_MINUTE = 1500
FEW = 0.03
"""Of the calls; two lanes that each take the whole limit are refused seven in a hundred of these."""


def connections(provider: ServedProvider, *names: str) -> str:
    return "".join(
        f'[connections.{name}]\nprotocol = "openai"\nbase_url = "{provider.base_url}"\n'
        f'api_key_env = "{name.upper()}_API_KEY"\n'
        for name in names
    )


def carrier(deployment: Cluster, lane: str) -> str:
    return LaneDirectory.read(deployment.redis, deployment.keys).carrier(lane)


@contextmanager
def another_worker(deployment: Cluster, name: str, **env: str) -> Iterator[Process]:
    """A worker beside those that there are, with an environment of its own."""
    stack, guard = deployment.stack, Guard()
    log = deployment.directory / "data" / "logs" / f"{name}.log"
    command, env = stack.plan.worker_command(name), {**stack.environment, **env}
    process = Process(name, command, log=log, guard=guard, env=env, ready_file=stack.plan.ready_file(name))
    process.start()
    try:
        process.wait_ready(30.0)
        yield process
    finally:
        process.ask_to_stop()
        if not process.join(10.0):
            process.kill()
            process.join(10.0)
        guard.close()


@pytest.mark.timeout(180)
def test_two_connections_with_one_key_keep_one_limit_together_and_share_it_fairly(tmp_path: Path) -> None:
    # Its bucket forgives a machine that delivers calls late and at once; twice its rate it does not.
    model = SimulatedModel(requests_per_minute=A_MINUTE, latency_ms=20, burst_seconds=2.0)
    with serve_in_thread(SimulatorConfig(models={"m": model}, api_key=SecretStr(OLD))) as provider:
        limits = f"requests_per_minute = {A_MINUTE}\n"
        config = connections(provider, "first", "second")
        config += f'[lanes."first:m"]\n{limits}[lanes."second:m"]\n{limits}'
        env = {"FIRST_API_KEY": OLD, "SECOND_API_KEY": OLD}
        with cluster(tmp_path, config=config, env=env) as deployment:
            wait_until(lambda: carrier(deployment, "second:m") == "first:m")
            runs = [
                deployment.client_of(team).submit(numbered(100), "question {{ n }}", model=f"{name}:m")
                for team, name in (("search", "first"), ("ads", "second"))
            ]
            wait_until(lambda: sum(run.status().jobs_done for run in runs) >= 100)
            done = [run.status().jobs_done for run in runs]
            for run in runs:
                all_succeeded(run)
                assert [part.lane for part in run.status().lanes] == ["first:m"]
            shown = {line["by"] for line in deployment.logged(Event.LIMITS_OVERRULED, lane="second:m")}
        served = provider.stats().models["m"]
    assert served.rejected <= FEW * served.requests
    assert min(done) >= 0.35 * sum(done)
    assert shown == {"first:m"}


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[tuple[Cluster, ServedProvider]]:
    model = SimulatedModel(requests_per_minute=A_MINUTE, latency_ms=10, headers="full")
    with serve_in_thread(SimulatorConfig(models={"m": model}, api_key=SecretStr(OLD))) as provider:
        config = connections(provider, "first", "second")
        env = {"FIRST_API_KEY": OLD, "SECOND_API_KEY": OLD}
        with cluster(tmp_path, config=config, env=env, workers=1) as deployment:
            wait_until(lambda: carrier(deployment, "second:m") == "first:m")
            yield deployment, provider


@pytest.mark.timeout(180)
def test_a_replaced_key_opens_its_lane_which_keeps_its_estimates(
    locked: tuple[Cluster, ServedProvider],
) -> None:
    deployment, provider = locked
    all_succeeded(deployment.client.submit(numbered(60), "question {{ n }}", model="first:m"))
    learned = ("requests_reported", "known_ms", "granted")
    shown, known_ms, granted = deployment.redis.hmget(deployment.keys.lane("first:m"), *learned)
    assert float(shown) > 0
    provider.change_key(NEW)
    run = deployment.client.submit(numbered(40), "again {{ n }}", model="second:m")
    wait_until(lambda: deployment.lanes.view("first:m").parked)
    with another_worker(deployment, "worker-new", FIRST_API_KEY=NEW, SECOND_API_KEY=NEW):
        deployment.process("worker-1").ask_to_stop()
        all_succeeded(run)
        assert [part.lane for part in run.status().lanes] == ["first:m"]
        assert deployment.lanes.view("first:m").parked is None
        after = deployment.redis.hmget(deployment.keys.lane("first:m"), *learned)
        assert after[:2] == [shown, known_ms]
        assert int(after[2]) > int(granted)
        changed = deployment.logged(Event.CREDENTIAL_CHANGED)
        assert {line["connection"] for line in changed} == {"first", "second"}
        assert {line["fingerprint"] for line in changed} != {line["before"] for line in changed}
        assert deployment.logged(Event.LANE_REOPENED, lane="first:m")
        acts = list(AuditLog(deployment.redis, deployment.keys).since())
        assert any(e.act == Act.CREDENTIAL_CHANGED and e.detail.get("opened") == ["first:m"] for e in acts)
    written = b"".join(file.read_bytes() for file in (deployment.directory / "data").rglob("*.aof"))
    assert b"credentials" in written
    assert not any(key.encode() in written for key in (OLD, NEW))


@pytest.mark.timeout(180)
def test_a_separate_key_gives_a_connection_separate_lanes_that_start_from_the_shared_estimates(
    locked: tuple[Cluster, ServedProvider],
) -> None:
    deployment, provider = locked
    all_succeeded(deployment.client.submit(numbered(60), "question {{ n }}", model="second:m"))
    assert "second:m" not in deployment.lanes.names()
    provider.change_key(None)
    with another_worker(deployment, "worker-new", FIRST_API_KEY=OLD, SECOND_API_KEY=NEW):
        wait_until(lambda: carrier(deployment, "second:m") == "second:m")
        run = deployment.client.submit(numbered(40), "again {{ n }}", model="second:m")
        all_succeeded(run)
        assert [part.lane for part in run.status().lanes] == ["second:m"]
        assert deployment.logged(Event.LANE_CREATED, lane="second:m", learned_from="first:m")
        scope = Scopes(deployment.redis, deployment.keys).read()["second"]
        assert (scope.lanes, scope.left, len(scope.held)) == ("second", "first", 2)
        assert deployment.logged(Event.CREDENTIALS_DIFFER, connection="second")
