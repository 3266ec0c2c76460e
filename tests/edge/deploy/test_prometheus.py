"""A real Prometheus that scrapes a real scheduler and workers: everything shown and alerted on is there."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator

import pytest
import yaml

from fairlane.embedded.ports import free_ports
from fairlane.testing import SimulatedModel
from tests.support.cluster import Cluster, all_succeeded, cluster, numbered
from tests.support.documents import ROOT, coded, table
from tests.support.prometheus import (
    RULES,
    Programs,
    Server,
    dashboard_expressions,
    find_programs,
    metric_names,
    serve,
)
from tests.support.wait import wait_until

PAGE = ROOT / "docs" / "metrics.md"
CONFIG = """
[lanes."sim:busy"]
requests_per_minute = 6000
tokens_per_minute = 6000000
requests_per_day = 100000
max_concurrency = 20
[lanes."sim:refused"]
[lanes."sim:closed"]
[teams.search]
weight = 3
budgets = [{ per = "day", requests = 45 }]
[metrics]
scheduler_port = 0
worker_port = 0
"""
MODELS = {
    "busy": SimulatedModel(latency_ms=5),
    "refused": SimulatedModel(latency_ms=5, requests_per_minute=300),
    "closed": SimulatedModel(status_always=401),
}
CONDITIONAL = {"FairlaneProcessDown", "FairlaneNoTargets"}  # `up` is Prometheus' own


@pytest.fixture(scope="module")
def programs(pytestconfig: pytest.Config) -> Programs:
    cache = pytestconfig.cache
    assert cache is not None
    return find_programs(cache.mkdir("prometheus"))


@pytest.fixture(scope="module")
def watched(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Server]]:
    """A deployment that has worked, but for a lane to which access is refused; and who has watched it."""
    directory = tmp_path_factory.mktemp("watched")
    with cluster(directory, MODELS, config=CONFIG, schedulers=2) as made:
        config = _scrape({role: _targets(made, role) for role in ("scheduler", "worker")})
        with serve(programs, directory, config, next(free_ports())) as server:
            wait_until(lambda: len(server.query("fairlane_scheduler_is_leader")) == 2, timeout=30)
            runs = [
                made.client_of(team).submit(dataset=numbered(40), prompt="{{ n }}", model=model)
                for team, model in (("search", "sim:busy"), ("ads", "sim:busy"), ("ads", "sim:refused"))
            ]
            made.client_of("ads").submit(dataset=numbered(5), prompt="{{ n }}", model="sim:closed")
            for run in runs:
                all_succeeded(run)
            wait_until(lambda: server.query("fairlane_lane_shut"), timeout=30)
            wait_until(lambda: server.query("sum(fairlane_runs_ended_total) == 3"), timeout=30)
            wait_until(lambda: server.query("sum(fairlane_jobs_ended_total) == 120"), timeout=30)
            yield made, server


def _targets(made: Cluster, role: str) -> list[str]:
    names = [name for name in made.stack.processes if name.startswith(role)]
    reported = [json.loads(made.stack.plan.ready_file(name).read_text(encoding="utf-8")) for name in names]
    return [each["metrics"].removeprefix("http://") for each in reported]


def _scrape(targets: dict[str, list[str]]) -> str:
    jobs = [
        {"job_name": f"fairlane-{role}", "static_configs": [{"targets": urls}]}
        for role, urls in targets.items()
    ]
    every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    return json.dumps({"global": every, "rule_files": [str(RULES)], "scrape_configs": jobs})


def test_every_expression_of_the_dashboards_returns_series(watched: tuple[Cluster, Server]) -> None:
    _, server = watched
    empty = []
    for place, expression in dashboard_expressions().items():
        asked = expression.replace("$lane", ".*").replace("$__rate_interval", "1m")
        if not server.query(asked):
            empty.append(place)
    assert not empty


def test_every_metric_of_the_alerts_is_there(watched: tuple[Cluster, Server]) -> None:
    _, server = watched
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"][0]["rules"]
    for rule in rules:
        named = metric_names(rule["expr"])
        assert named or rule["alert"] in CONDITIONAL
        assert [name for name in sorted(named) if not server.query(name)] == [], rule["alert"]


@pytest.mark.parametrize("row", table(PAGE, "metric", "type"), ids=lambda row: row["metric"].strip("`"))
def test_a_metric_has_the_labels_that_are_described(
    watched: tuple[Cluster, Server], row: dict[str, str]
) -> None:
    _, server = watched
    (name,) = coded(row["metric"])
    series = server.query(f"{name}_count" if row["type"] == "histogram" else name)
    labels = {label for each in series for label in each["metric"]} - {"__name__", "job", "instance"}
    assert series
    assert labels == set(coded(row["labels"]))


def test_what_is_wrong_alerts_and_nothing_else(watched: tuple[Cluster, Server]) -> None:
    _, server = watched
    wrong = {"FairlaneLaneParked", "FairlaneBudgetNearlyUsed"}
    wait_until(lambda: server.alerts() == wrong, timeout=20)


def test_what_prometheus_counts_is_what_the_runs_count(watched: tuple[Cluster, Server]) -> None:
    _, server = watched

    def one(expression: str) -> float:
        return float(server.query(expression)[0]["value"][1])

    assert one('sum(fairlane_jobs_ended_total{state="succeeded"})') == 120
    assert one('sum(fairlane_calls_total{outcome="success"})') == 120
    # A permit that came too late, on a machine that stood still, is granted once more.
    late = one('sum(fairlane_lane_returned_total{lane="sim:busy"})')
    assert one('sum(fairlane_lane_granted_total{lane="sim:busy"})') == 80 + late
    assert 40 <= one('sum(fairlane_permits_total{team="search"})') <= 40 + late
    assert one('sum(fairlane_runs_ended_total{state="completed"})') == 3
    assert one('sum(fairlane_jobs{state="waiting"})') == 5
    assert one("sum(fairlane_permit_to_wire_seconds_count)") == one("sum(fairlane_calls_total)")
    assert one('fairlane_lane_shut{lane="sim:closed", reason="parked"}') == 1
    refused = 'sum(fairlane_lane_calls_total{result="rate_limited"})'
    assert one(refused) == one('sum(fairlane_calls_total{outcome="rate_limited"})')


@pytest.mark.parametrize("file", ["prometheus.yml", "prometheus.local.yml"])
def test_promtool_finds_no_fault_with_a_configuration(programs: Programs, file: str) -> None:
    printed = programs.check("check", "config", "--lint-fatal", RULES.parent / file)
    assert "SUCCESS" in printed


def test_each_alert_comes_when_it_should_and_not_before(programs: Programs) -> None:
    assert "SUCCESS" in programs.check("test", "rules", RULES.with_name("fairlane.test.yml"))


@pytest.mark.parametrize("role", ["scheduler", "worker"])
def test_promtool_finds_no_fault_with_what_is_served(
    programs: Programs, watched: tuple[Cluster, Server], role: str
) -> None:
    made, _ = watched
    for target in _targets(made, role):
        with urllib.request.urlopen(f"http://{target}/metrics", timeout=10) as reply:
            programs.lint(reply.read())
