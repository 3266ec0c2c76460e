"""Heartbeats of active runs in the leader's log."""

from __future__ import annotations

from typing import Any

from redis import Redis
from structlog.testing import capture_logs

from fairlane.store.run_queries import RunStates
from fairlane.store.write.workers import Beat, WorkerInfo
from fairlane_scheduler.upkeep.run_heartbeat import EVERY_MS, MOST_RUNS, RunHeartbeat
from tests.support.scheduler_parts import Parts


def beat(parts: Parts) -> list[dict[str, Any]]:
    heartbeat = RunHeartbeat(RunStates(parts.redis, parts.keys), parts.backlog, parts.dispatcher.reason_of)
    with capture_logs() as logs:
        assert heartbeat.tick(parts.moment()) == parts.moment().monotonic_ms + EVERY_MS
    return [dict(line) for line in logs if line["event"] == "run_progress"]


def staffed(redis: Redis) -> Parts:
    parts = Parts(redis)
    lanes = ("sim:fast", "sim:slow", "sim:judge")
    parts.capacity.update([Beat("w", 0, WorkerInfo("w", 50, lanes, "0", 1, "h", 0))])
    return parts


def test_each_active_run_is_logged_with_what_it_waits_for(fake_redis: Redis) -> None:
    parts = staffed(fake_redis)
    parts.admit(10, run="own", bounds={"max_concurrent": 2})
    parts.admit(10, run="lane", model="sim:slow")
    parts.admit(3, run="none", model="sim:judge")
    parts.feed_all()
    parts.lanes.limit("sim:slow", {"requests_per_minute": 60})
    parts.dispatcher.tick(parts.moment())

    shown = {line["run"]: line for line in beat(parts)}
    assert {run: line["waiting_for"] for run, line in shown.items()} == {
        "own": {"sim:fast": "max_concurrent"},
        "lane": {"sim:slow": "requests"},
        "none": {},
    }
    assert {run: (line["done"], line["total"], line["in_flight"]) for run, line in shown.items()} == {
        "own": (0, 10, 2),
        "lane": (0, 10, 1),
        "none": (0, 3, 3),
    }


def test_a_paused_run_waits_for_its_resumption(fake_redis: Redis) -> None:
    parts = staffed(fake_redis)
    run = parts.admit(10)
    parts.feed_all()
    fake_redis.hset(parts.keys.state(run.ref), "paused_ms", parts.now_ms)

    assert [line["waiting_for"] for line in beat(parts)] == ["run_paused"]


def test_without_active_runs_nothing_is_logged_and_of_very_many_some(fake_redis: Redis) -> None:
    parts = staffed(fake_redis)
    assert beat(parts) == []

    for n in range(MOST_RUNS + 1):
        parts.admit(1, run=f"r{n}")
    assert len(beat(parts)) == MOST_RUNS
