"""The page on metrics, the alerts and the dashboards name what the code serves, and nothing else."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from fairlane.config.sections import MetricsSettings
from tests.support.documents import ROOT, coded, table
from tests.support.prometheus import DASHBOARDS, RULES, dashboard_expressions, metric_names
from tests.support.registries import families

PAGE = ROOT / "docs" / "metrics.md"
DOCUMENTED = {coded(row["metric"])[0]: row for row in table(PAGE, "metric", "type")}
SERVED = {role: families(role) for role in ("scheduler", "worker")}
RULE_GROUPS: list[dict[str, Any]] = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
ALERTS = {rule["alert"]: rule for group in RULE_GROUPS for rule in group["rules"]}
GRAFANA = ROOT / "deploy" / "grafana"


def served_names() -> set[str]:
    """Names that a query may use: a histogram's are those of its parts."""
    names = set[str]()
    for role in SERVED.values():
        for name, family in role.items():
            parts = [f"{name}{part}" for part in ("_bucket", "_sum", "_count")]
            names |= set(parts) if family.type == "histogram" else {name}
    return names


def test_every_metric_is_described_with_its_type_and_by_whom_it_is_reported() -> None:
    ours = {
        role: {name: family.type for name, family in shown.items() if name.startswith("fairlane_")}
        for role, shown in SERVED.items()
    }
    described = {
        role: {name: row["type"] for name, row in DOCUMENTED.items() if role[0] in row["by"].split(", ")}
        for role in SERVED
    }
    assert described == ours, PAGE


def test_a_standby_reports_what_the_page_says() -> None:
    rows = list(DOCUMENTED)[:8]
    assert rows[1] == "fairlane_scheduler_is_leader"
    assert all(DOCUMENTED[name]["labels"] in ("", "`version`, `role`") for name in rows)


def test_every_alert_is_described_with_its_severity() -> None:
    rows = {coded(row["alert"])[0]: row["severity"] for row in table(PAGE, "alert", "severity")}
    assert rows == {name: rule["labels"]["severity"] for name, rule in ALERTS.items()}, PAGE


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_asks_for_metrics_that_are_served(alert: str) -> None:
    assert metric_names(ALERTS[alert]["expr"]) <= served_names()


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_is_tested_firing_and_silent(alert: str) -> None:
    page = RULES.with_name("fairlane.test.yml")
    tests = yaml.safe_load(page.read_text(encoding="utf-8"))["tests"]
    asked = [each for test in tests for each in test["alert_rule_test"] if each["alertname"] == alert]
    assert {bool(each.get("exp_alerts")) for each in asked} == {True, False}, page


@pytest.mark.parametrize("expression", dashboard_expressions().values(), ids=list(dashboard_expressions()))
def test_a_panel_asks_for_metrics_that_are_served(expression: str) -> None:
    named = metric_names(expression)
    assert named
    assert named <= served_names()


def test_every_metric_is_shown_or_alerted_on() -> None:
    expressions = [*dashboard_expressions().values(), *(rule["expr"] for rule in ALERTS.values())]
    asked = set[str]().union(*(metric_names(each) for each in expressions))
    hidden = {name for name in DOCUMENTED if not any(each.startswith(name) for each in asked)}
    constant = {"fairlane_build_info", "fairlane_worker_lanes"}
    daily = {"fairlane_lane_allowed_per_day", "fairlane_lane_limit_per_day"}
    assert hidden == constant | daily


def test_the_dashboards_are_those_that_their_panels_make() -> None:
    made = _maker().dashboards()
    written = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in DASHBOARDS}
    assert written == made, "write them anew with `python deploy/grafana/make_dashboards.py`"


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_no_two_panels_share_a_place_or_a_number(path: Path) -> None:
    panels = json.loads(path.read_text(encoding="utf-8"))["panels"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)


@pytest.mark.parametrize("name", ["prometheus.yml", "prometheus.local.yml"])
def test_scraping_goes_to_the_default_ports_under_the_names_that_rules_know(name: str) -> None:
    config = yaml.safe_load((RULES.parent / name).read_text(encoding="utf-8"))
    defaults = MetricsSettings()
    first = {"fairlane-scheduler": defaults.scheduler_port, "fairlane-worker": defaults.worker_port}
    assert {job["job_name"]: _port(job) for job in config["scrape_configs"]} == first
    assert config["rule_files"] == [RULES.name]


def _port(job: dict[str, Any]) -> int:
    if "dns_sd_configs" in job:
        return int(job["dns_sd_configs"][0]["port"])
    return int(job["static_configs"][0]["targets"][0].rpartition(":")[2])


def _maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_dashboards", GRAFANA / "make_dashboards.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
