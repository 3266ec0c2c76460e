"""Rows of a connection that this scheduler's settings lack, and others' have, wait and are not invalid."""

from __future__ import annotations

from structlog.testing import capture_logs

from fairlane.store.write.scopes import Scopes
from fairlane_scheduler.feed.feeder import Feeder
from fairlane_scheduler.lanes.registry import LaneRegistry
from fairlane_scheduler.lanes.sharing import LaneSharing
from tests.support.scheduler_parts import Parts


def without(parts: Parts, connection: str) -> Feeder:
    """The feeder of a scheduler whose settings lack a connection."""
    rest = {name: each for name, each in parts.settings.connections.items() if name != connection}
    settings = parts.settings.model_copy(update={"connections": rest, "lanes": {}})
    sharing = LaneSharing(Scopes(parts.redis, parts.keys), rest)
    parts.registry = LaneRegistry(parts.lanes, sharing, settings)
    parts.registry.reload()
    parts.feeder = Feeder(parts.runs, parts.backlog, parts.registry, parts.clock, settings)
    return parts.feeder


def test_rows_of_a_renamed_connection_are_queued_on_its_lane(parts: Parts) -> None:
    run = parts.admit(300)
    parts.feeder.tick(parts.moment())
    assert 0 < run.cursor < 300
    feeder = without(parts, "sim")
    parts.backlog.set_queued("sim:fast", run.ref, 0)
    for _ in range(20):
        parts.clock.advance(0.05)
        feeder.tick(parts.moment())
        parts.backlog.set_queued("sim:fast", run.ref, 0)
    assert run.cursor == 300
    assert "n:invalid" not in parts.state(run.ref)


def test_rows_of_a_connection_without_a_lane_wait_until_the_scheduler_has_it(parts: Parts) -> None:
    run = parts.admit(3, model="shared:x")
    whole = parts.feeder
    feeder = without(parts, "shared")
    with capture_logs() as logs:
        for _ in range(3):
            parts.clock.advance(1.1)
            parts.leader.tick(parts.clock.monotonic_ms(), parts.now_ms)
            assert feeder.wait_ms(parts.clock.monotonic_ms()) == 0
            feeder.tick(parts.moment())
            assert feeder.wait_ms(parts.clock.monotonic_ms()) == 1000
    assert [(line["event"], line["connection"]) for line in logs] == [("connection_awaited", "shared")]
    assert (run.cursor, parts.state(run.ref).get("n:invalid")) == (0, None)
    whole.tick(parts.moment())
    assert (run.cursor, len(parts.queued(run.ref, "shared"))) == (3, 3)


def test_a_row_waits_for_a_connection_that_a_worker_reports(parts: Parts) -> None:
    run = parts.admit([{"q": 1, "m": model} for model in ("sim:fast", "later:x", "typo:x")], model="{{ m }}")
    parts.registry.note_reported(["later"])
    parts.feeder.tick(parts.moment())
    assert (run.cursor, parts.state(run.ref).get("n:invalid")) == (1, None)
    parts.registry.note_reported([])
    parts.clock.advance(1.1)
    parts.feeder.tick(parts.moment())
    parts.clock.advance(1.1)
    parts.feeder.tick(parts.moment())
    assert (run.cursor, parts.state(run.ref).get("n:invalid")) == (3, "2")
