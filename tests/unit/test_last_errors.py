"""A lane's failed calls, and the provider's words for the last of them, are shown wherever lanes are."""

from __future__ import annotations

import pytest
from prometheus_client.core import GaugeMetricFamily
from redis import Redis

from fairlane.model.run import RunRef
from fairlane.telemetry.metrics_server import LabelValues
from fairlane.top.panes import ERROR_CHARS, LANES
from fairlane.top.reading import Reader
from fairlane_scheduler.monitoring.deployment_metrics import lane_families
from tests.support.command_line import CommandLine
from tests.unit.test_cli_top import opened

WORDS = "the model is [/b]broken[red] \x1b[31mtoday, and will be for a while"


@pytest.fixture
def cli(real_redis: Redis) -> CommandLine:
    made = CommandLine(real_redis)
    run = made.submitted(10)
    d = made.stage.deployment
    made.stage.answer(run, 3)
    (attempt,) = d.start(RunRef("search", run))
    d.defer(attempt, signal="server_error", reason=WORDS, cost="unproven")
    return made


def test_a_list_of_lanes_ends_with_their_last_errors(cli: CommandLine) -> None:
    listed = cli("lanes")
    assert "25.0%" in listed.stdout
    assert "sim:fast failed 25.0% of the calls" in listed.stderr
    assert "the model is [/b]broken[red]" in listed.stderr
    assert "\x1b" not in listed.stderr
    assert "sim:judge failed" not in listed.stderr


def test_top_shows_the_beginning_of_the_last_error(cli: CommandLine) -> None:
    snapshot = Reader(opened(cli)).read()
    (column,) = [each for each in LANES.columns if each.title == "last error"]
    assert [column.cell(line, snapshot.now_ms) for line in snapshot.lanes] == [WORDS[:ERROR_CHARS], ""]


def test_metrics_have_the_time_of_the_last_error(cli: CommandLine) -> None:
    d = cli.stage.deployment
    families = lane_families(d.lanes.views(["sim:fast", "sim:judge"], d.now_ms), LabelValues(5))
    (family,) = [each for each in families if each.name == "fairlane_lane_last_error_timestamp_seconds"]
    assert isinstance(family, GaugeMetricFamily)
    assert [(each.labels, each.value) for each in family.samples] == [({"lane": "sim:fast"}, d.now_ms / 1000)]
