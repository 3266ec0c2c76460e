"""Every change of note is in the audit log, written in the step that made it; what changed nothing is not."""

from __future__ import annotations

import pytest
from redis import Redis

from fairlane.core.errors import LaneNotFound
from fairlane.model.ending import TIMED_OUT
from fairlane.model.run import RunRef
from fairlane.store.write.audit import Act, AuditLog, Auditor
from fairlane.store.write.lanes.lanes import Lanes
from fairlane.store.write.runs.runs import Runs
from tests.support.deployment import TTL_MS, Deployment

ANN = Auditor("operator", "ann@host")
LANE = "sim:fast"


def acts(d: Deployment) -> list[str]:
    return [entry.act for entry in AuditLog(d.redis, d.keys).since()]


def forget(d: Deployment) -> None:
    d.redis.delete(d.keys.audit)


def test_a_lane_s_changes_are_audited_with_their_actor(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    lanes = Lanes(real_redis, d.keys, ANN)
    d.lane()
    forget(d)
    lanes.limit(LANE, {"max_concurrency": 2})
    lanes.pause(LANE)
    lanes.resume(LANE, d.now_ms)
    lanes.drain(LANE, d.now_ms)
    shown = list(AuditLog(real_redis, d.keys).since())
    assert [entry.act for entry in shown] == [Act.LIMITED, Act.PAUSED, Act.OPENED, Act.DRAINED]
    assert {(entry.role, entry.who, entry.what, entry.team) for entry in shown} == {
        ("operator", "ann@host", LANE, "")
    }
    assert shown[0].detail == {"before": {"max_concurrency": None}, "after": {"max_concurrency": "2"}}


def test_entries_have_the_redis_servers_time(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    seconds, microseconds = real_redis.time()
    d.lane()
    (entry,) = AuditLog(real_redis, d.keys).since()
    assert entry.at_ms >= seconds * 1000 + microseconds // 1000


def test_a_change_without_effect_is_not_audited(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    d.lane()
    ref = d.submit()
    old = d.epoch
    d.elect("scheduler-2")
    d.cancel(ref)
    forget(d)
    d.lanes.limit(LANE, {})
    d.cancel(ref)
    d.runs.refuse(ref, "again", d.now_ms, d.epoch, d.now_ms)
    d.runs.refuse(RunRef("search", "new"), "by an old leader", d.now_ms, old, d.now_ms)
    for act in (d.lanes.pause, d.lanes.resume):
        with pytest.raises(LaneNotFound):
            act("sim:none")
    assert acts(d) == []


def test_a_run_that_the_scheduler_ends_early_is_audited_as_its_change(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    runs = Runs(real_redis, d.keys, TTL_MS, Auditor("scheduler", "scheduler-1"))
    ref = d.submit(rows=3)
    runs.end(ref, d.lanes.names(), TIMED_OUT, d.epoch, d.now_ms)
    entry = list(AuditLog(real_redis, d.keys).since(team=ref.team))[-1]
    assert (entry.role, entry.who, entry.act, entry.what) == ("scheduler", "scheduler-1", Act.ENDED, ref.run)
    assert entry.detail == {"state": "timed_out", "reason": TIMED_OUT.reason, "unfinished": 3}


def test_pausing_and_resuming_a_run_are_each_audited_once_with_their_actor(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.submit()
    forget(d)
    assert d.runs.pause(ref, "ann@host", d.epoch, d.now_ms)
    assert not d.runs.pause(ref, "bob@host", d.epoch, d.now_ms)
    assert d.runs.resume(ref, "bob@host", d.epoch, d.now_ms)
    assert not d.runs.resume(ref, "ann@host", d.epoch, d.now_ms)
    shown = list(AuditLog(real_redis, d.keys).since())
    assert [(entry.act, entry.role, entry.who, entry.what) for entry in shown] == [
        (Act.RUN_PAUSED, "team", "search", "r1"),
        (Act.RUN_RESUMED, "team", "search", "r1"),
    ]
    assert [entry.detail for entry in shown] == [{"by": "ann@host"}, {"by": "bob@host"}]


def test_the_oldest_entries_are_removed_for_new_ones(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    d.lane()
    lanes = Lanes(real_redis, d.keys, Auditor("operator", "ann@host", keep=100))
    for _ in range(500):
        lanes.pause(LANE)
    assert 100 <= real_redis.xlen(d.keys.audit) < 300
