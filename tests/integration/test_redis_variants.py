"""Redis behind Sentinels and as a cluster: a run goes on when another server takes over."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from typer.testing import CliRunner

from fairlane.cli.main import app
from fairlane.core.events import Event
from fairlane.embedded.server import start_embedded
from tests.support.cluster import Cluster, cluster
from tests.support.redis_fleet import Fleet, clustered, watched_by_sentinels
from tests.support.strict_lane import start_strict_run

JOBS = 240


def test_a_run_goes_on_when_sentinels_name_another_primary(tmp_path: Path) -> None:
    with deployed(tmp_path, watched_by_sentinels) as (fleet, deployment):
        strict = start_strict_run(deployment, JOBS)
        strict.wait_for(JOBS // 4)

        before = fleet.kill_primary()

        assert fleet.primary() != before
        strict.check()
        deployment.wait_logged(Event.STORE_BACK, source="runner")
        assert not deployment.stack.poll(), "a process has died"
        assert f"the primary is 127.0.0.1:{fleet.primary()}" in doctor(deployment)["redis"]


def test_a_run_goes_on_when_its_slot_moves_and_when_its_node_dies(tmp_path: Path) -> None:
    with start_embedded(tmp_path / "broker") as broker:
        config = f'[celery]\nbroker_url = "{broker.broker_url}"\n'
        with deployed(tmp_path, clustered, config) as (fleet, deployment):
            strict = start_strict_run(deployment, JOBS)
            strict.wait_for(JOBS // 4)

            before = fleet.primary()
            fleet.move_slot()
            assert fleet.primary() != before
            strict.wait_for(JOBS // 2)
            fleet.move_slot(to=before)
            assert fleet.kill_primary() == before

            assert fleet.primary() != before
            strict.check()
            assert not deployment.stack.poll(), "a process has died"
            shown = doctor(deployment)
            assert f"the primary is 127.0.0.1:{fleet.primary()}" in shown["redis"]
            assert shown["broker"] == "it answers"


def test_a_cluster_without_a_broker_is_reported_before_anything_starts(tmp_path: Path) -> None:
    environment = {"FAIRLANE_REDIS__URL": "redis+cluster://127.0.0.1:1", "COLUMNS": "200"}
    for role in ("scheduler", "worker"):
        refused = CliRunner().invoke(app, [role], env=environment)
        assert refused.exit_code == 2
        assert "celery.broker_url" in refused.stderr
        assert "on a cluster" in refused.stderr


@contextmanager
def deployed(
    directory: Path, kind: Callable[[Path], AbstractContextManager[Fleet]], config: str = ""
) -> Iterator[tuple[Fleet, Cluster]]:
    """Those servers, and everything of ours on them."""
    with ExitStack() as stack:
        (directory / "servers").mkdir()
        fleet = stack.enter_context(kind(directory / "servers"))
        deployment = stack.enter_context(cluster(directory, config=config, redis_url=fleet.url, workers=1))
        deployment.begin()
        yield fleet, deployment


def doctor(deployment: Cluster) -> dict[str, str]:
    """What each check came to; none fails."""
    ended = CliRunner().invoke(app, ["doctor", "--json"], env=deployment.stack.environment)
    findings = json.loads(ended.stdout)
    assert not [finding for finding in findings if finding["grade"] == "fail"]
    return {finding["check"]: finding["detail"] for finding in findings}
