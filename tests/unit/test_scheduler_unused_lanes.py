"""Lanes that nobody uses are forgotten: after a week, and after an hour where a team has opened many."""

from __future__ import annotations

import pytest
from redis import Redis
from structlog.testing import capture_logs

from fairlane_scheduler.lanes import registry
from fairlane_scheduler.lanes.registry import CROWDED_UNUSED_MS, EVERY_MS, UNUSED_MS, UnusedLanes
from fairlane_scheduler.state.server_time import Moment
from tests.support.scheduler_parts import Parts


@pytest.fixture
def parts(real_redis: Redis) -> Parts:
    return Parts(real_redis)


def watch(parts: Parts) -> tuple[UnusedLanes, list[str]]:
    dropped: list[str] = []
    return UnusedLanes(parts.lanes, parts.registry, parts.backlog, dropped.append), dropped


def later(parts: Parts, watched: UnusedLanes, ms: int, *, all_loaded: bool = True) -> None:
    parts.clock.advance(ms / 1000)
    parts.leader.tick(parts.clock.monotonic_ms(), parts.now_ms)
    watched.tick(
        Moment(parts.leader.epoch, parts.clock.monotonic_ms(), parts.now_ms, parts.now_ms),
        all_loaded=all_loaded,
    )


def opened(parts: Parts, *models: str, team: str = "flood") -> None:
    for model in models:
        parts.registry.ensure(parts.registry.lane_of(f"sim:{model}", team=team))


def test_a_lane_that_nobody_used_for_a_week_is_forgotten_and_may_be_opened_again(parts: Parts) -> None:
    parts.registry.reload()
    opened(parts, "once")
    watched, dropped = watch(parts)
    later(parts, watched, 0)
    later(parts, watched, UNUSED_MS - EVERY_MS)
    assert dropped == []
    with capture_logs() as logs:
        later(parts, watched, EVERY_MS)
    assert dropped == ["sim:once"]
    assert [line["lane"] for line in logs if line["event"] == "lane_forgotten"] == ["sim:once"]
    assert parts.lanes.names() == ["sim:fast", "sim:judge", "sim:slow"], "described lanes stay"
    opened(parts, "once")
    assert "sim:once" in parts.lanes.names()


def test_the_lanes_of_a_team_that_opened_many_are_forgotten_after_an_hour(parts: Parts) -> None:
    parts.registry.most_of_team = 4
    opened(parts, "a", "b", "c")
    opened(parts, "d", team="other")
    watched, dropped = watch(parts)
    later(parts, watched, 0)
    later(parts, watched, CROWDED_UNUSED_MS)
    assert sorted(dropped) == ["sim:a", "sim:b", "sim:c"]
    assert parts.registry.openers == {"sim:d": "other"}


def test_where_there_are_many_lanes_all_are_forgotten_after_an_hour(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "MOST_LANES", 3)
    opened(parts, "a")
    parts.registry.ensure("sim:of-nobody")
    watched, dropped = watch(parts)
    later(parts, watched, 0)
    later(parts, watched, CROWDED_UNUSED_MS)
    assert sorted(dropped) == ["sim:a", "sim:of-nobody"]


def test_lanes_of_active_runs_stay_however_long_they_wait(parts: Parts) -> None:
    run = parts.admit(3, model="sim:task", judges=["sim:waiting"])
    parts.feed_all()
    opened(parts, "task", "waiting")
    watched, dropped = watch(parts)
    later(parts, watched, 0)
    later(parts, watched, 2 * UNUSED_MS)
    assert dropped == []
    parts.backlog.drop_run(run.ref)
    later(parts, watched, EVERY_MS)
    later(parts, watched, UNUSED_MS, all_loaded=False)
    assert dropped == [], "a run that is not loaded may need them"
    later(parts, watched, EVERY_MS)
    assert sorted(dropped) == ["sim:task", "sim:waiting"]
