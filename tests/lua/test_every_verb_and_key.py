"""Every verb that meets a key of another type changes nothing, or completes: each of its keys is tried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from fairlane.model.ending import Completion, RecordedJob, SessionCompletion
from fairlane.model.job import JobState
from fairlane.model.run import Plan, RunRef
from fairlane.store.script import Call, Script
from fairlane.store.verbs import all_scripts
from fairlane.store.write.budgets import Budgets
from fairlane.store.write.lanes.lane_memory import LaneMemory
from fairlane.store.write.runs.archive_stub import ArchiveStubs
from fairlane.store.write.runs.lost_jobs import LostJobs
from fairlane.store.write.runs.run_control import restore_active
from fairlane.store.write.scopes import Scope, Scopes
from fairlane.store.write.workers import WorkerInfo, WorkerRequest
from tests.lua.test_keys_of_another_type import ACTS as OF_JOBS
from tests.lua.test_keys_of_another_type import FAST, JUDGE, REF, played, started
from tests.support.contents import read_contents
from tests.support.deployment import LEASE_MS, SPENT, Deployment, entry, make_spec

NEW = RunRef("search", "r2")
Act = Callable[[], object]


def submitted(d: Deployment) -> Plan:
    spec = make_spec("search", "r2", 2, 1, d.now_ms)
    d.upload(spec)
    return Plan(spec=spec, eval_lanes=(JUDGE,))


def opened(d: Deployment, **changes: object) -> Plan:
    """The plan of an open run without rows."""
    spec = make_spec("search", "r2", 0, 1, d.now_ms).model_copy(update={"open": True, **changes})
    d.upload(spec)
    plan = Plan(spec=spec, eval_lanes=(JUDGE,))
    d.runs.admit(plan, d.epoch, d.redis_ms)
    return plan


def admitting(d: Deployment) -> Act:
    plan = submitted(d)
    return lambda: d.runs.admit(plan, d.epoch, d.redis_ms)


def refusing(d: Deployment) -> Act:
    submitted(d)
    return lambda: d.runs.refuse(NEW, "no", d.now_ms, d.epoch, d.redis_ms)


def forgetting(d: Deployment) -> Act:
    refusing(d)()
    return lambda: d.runs.forget_refused(NEW, d.epoch, d.redis_ms)


def extending(d: Deployment) -> Act:
    plan = opened(d)
    return lambda: d.runs.extend(NEW, plan, 0, d.epoch, d.redis_ms, last=True)


def feeding(d: Deployment) -> Act:
    over = [RecordedJob(step, JobState.FAILED, SPENT, FAST) for step in (14, 15)]
    entries = {FAST: [entry(12, 5)], JUDGE: [entry(13, 5)]}
    return lambda: d.runs.feed(
        REF, d.epoch, 6, 8, entries, over, d.redis_ms, memory={"m": "1"}, joined={7: JOINED}
    )


def mending(d: Deployment) -> Act:
    for step in (0, 1):
        LostJobs(d.redis, d.keys).fail(REF, step, FAST, LOST, d.epoch, d.redis_ms)
    d.redis.delete(d.keys.done(REF), d.keys.finished(REF))
    return lambda: LostJobs(d.redis, d.keys).mend(REF, d.epoch, d.redis_ms)


def recounting_lanes(d: Deployment) -> Act:
    started(d)
    d.redis.hset(d.keys.lane(FAST), "inflight", 9)
    return lambda: d.lanes.recount([FAST], d.epoch, LEASE_MS, d.redis_ms)


def recounting_runs(d: Deployment) -> Act:
    started(d)
    d.redis.hset(d.keys.state(REF), mapping={"in_flight": 9, "held_lanes": f"{FAST}\n"})
    return lambda: LostJobs(d.redis, d.keys).recount([REF], d.epoch, d.redis_ms)


def resuming_lane(d: Deployment) -> Act:
    d.redis.hset(d.keys.lane(FAST), mapping={"parked": 1, "parked_ms": 1})
    return lambda: d.lanes.resume(FAST, d.redis_ms)


def resuming_run(d: Deployment) -> Act:
    d.runs.pause(REF, "me", d.epoch, d.redis_ms)
    return lambda: d.runs.resume(REF, "me", d.epoch, d.redis_ms)


def inheriting(d: Deployment) -> Act:
    d.redis.hset(d.keys.lane(JUDGE), mapping={"known_ms": 1, "requests_est": 5})
    return lambda: d.lanes.inherit(FAST, JUDGE, d.now_ms, d.redis_ms)


def restoring(d: Deployment) -> Act:
    memory = LaneMemory(d.redis, d.keys)
    d.redis.hset(d.keys.lane(FAST), mapping={"known_ms": 1, "requests_est": 5})
    memory.refresh([FAST])
    d.redis.delete(d.keys.lane(FAST))
    return lambda: memory.restore(d.redis_ms)


def unused(d: Deployment) -> Act:
    d.lane("sim:old", requests_per_minute=60)
    d.advance(10**6)
    return lambda: d.lanes.forget("sim:old", d.epoch, 1, d.redis_ms)


def saving(d: Deployment) -> Act:
    d.redis.hset(d.keys.lane(FAST), mapping={"parked": 1, "parked_ms": 1})
    scopes = Scopes(d.redis, d.keys)
    return lambda: scopes.save({"sim": Scope("sim")}, {"sim": "f"}, [FAST], d.epoch, d.redis_ms)


def beating(d: Deployment) -> Act:
    held = [started(d).id]
    return lambda: d.workers.beat("w1", INFO, held, LEASE_MS, changed=True, now_ms=d.redis_ms).run(d.redis)


def draining(d: Deployment) -> Act:
    d.workers.beat("w1", INFO, [], LEASE_MS, changed=True, now_ms=d.redis_ms).run(d.redis)
    return lambda: d.workers.ask(d.redis, "w1", WorkerRequest.STOP)


def leaving(d: Deployment) -> Act:
    draining(d)()
    return lambda: d.workers.leave("w1").run(d.redis)


def archiving(d: Deployment) -> Act:
    d.cancel(REF)
    finished_ms = d.count(REF, "finished_ms")
    return lambda: ArchiveStubs(d.redis, d.keys).leave(REF, finished_ms, d.redis_ms)


def refinding(d: Deployment) -> Act:
    lanes = [FAST, JUDGE]
    return lambda: d.runs.refind(REF, lanes, d.epoch, d.redis_ms)


INFO = WorkerInfo("w1", slots=4, lanes=(FAST,), version="1", pid=7, host="h", started_ms=1)
LOST = Completion(JobState.FAILED, SPENT)
JOINED = SessionCompletion(0, 0, 1, True, ((entry(40, 5), JUDGE),))
ACTS: dict[str, Callable[[Deployment], Act]] = OF_JOBS | {
    "active": lambda d: lambda: restore_active(d.redis, d.keys, [REF, NEW]),
    "admit": admitting,
    "archive": archiving,
    "await slots": lambda d: lambda: d.lanes.await_slots([FAST], [FAST, JUDGE]),
    "beat": beating,
    "bid": lambda d: lambda: d.bid(),
    "budget": lambda d: lambda: Budgets(d.redis, d.keys).set("search", "day", {"tokens": 5}),
    "drain lane": lambda d: lambda: d.lanes.drain(FAST, d.redis_ms),
    "drain worker": draining,
    "extend": extending,
    "feed": feeding,
    "forget lane": unused,
    "forget run": forgetting,
    "inherit": inheriting,
    "leave": leaving,
    "limit": lambda d: lambda: d.lanes.limit(FAST, {"requests_per_minute": 60}, d.redis_ms),
    "mend": mending,
    "pause lane": lambda d: lambda: d.lanes.pause(FAST),
    "pause run": lambda d: lambda: d.runs.pause(REF, "me", d.epoch, d.redis_ms),
    "recount lanes": recounting_lanes,
    "recount runs": recounting_runs,
    "refind": refinding,
    "refuse": refusing,
    "resign": lambda d: lambda: d.leader("scheduler-1").resign(),
    "restore": restoring,
    "resume lane": resuming_lane,
    "resume run": resuming_run,
    "save": saving,
    "stranded": lambda d: lambda: LostJobs(d.redis, d.keys).is_stranded(REF, [FAST], d.epoch, d.redis_ms),
}

OF_ONE_KEY = {
    *("inbox_ask", "inbox_peek", "key_discard", "leader_acquire", "leader_resign", "upload_expire"),
    *("lane_view", "queue_view"),
}
"""Verbs that write one key at most, or none."""


def call_of(redis: Redis, patch: pytest.MonkeyPatch, name: str) -> Call:
    """The last call of an act, on keys of their right types."""
    calls, bind = list[Call](), Script.bind

    def noted(self: Script, *args: Any) -> Call:
        calls.append(bind(self, *args))
        return calls[-1]

    with patch.context() as context:
        context.setattr(Script, "bind", noted)
        ACTS[name](played(redis))()
    return calls[-1]


def retype(redis: Redis, key: bytes, kind: str) -> bool:
    """Give a key another type; false if that is its own."""
    if redis.type(key) == kind.encode():
        return False
    redis.delete(key)
    redis.set(key, "x") if kind == "string" else redis.xadd(key, {"x": "x"})
    return True


@pytest.mark.parametrize("kind", ["string", "stream"])
@pytest.mark.parametrize("name", ACTS)
def test_each_verb_changes_nothing_or_completes(
    real_redis: Redis, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    torn = set[str]()
    for key in dict.fromkeys(call_of(real_redis, monkeypatch, name).keys):
        act = ACTS[name](played(real_redis))
        if not retype(real_redis, key, kind):
            continue
        before = read_contents(real_redis)
        try:
            act()
        except ResponseError:
            if read_contents(real_redis) != before:
                torn.add(key.decode())
    assert not torn


def test_every_verb_of_several_keys_is_tried(real_redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = {call_of(real_redis, monkeypatch, name).script.name for name in ACTS}
    assert {name.partition(",")[0] for name in tried} | OF_ONE_KEY >= {each.name for each in all_scripts()}
