"""A finished run that is in the archive leaves a stub; any other run is left as it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.run import RunRef
from fairlane.store.write.runs.archive_stub import ArchiveStubs, StubOutcome
from tests.support.contents import read_contents
from tests.support.deployment import TTL_MS, Deployment
from tests.support.redis import emptied

pytestmark = pytest.mark.usefixtures("no_keys_left")


def completed(d: Deployment, jobs: int = 3, run: str = "r1") -> RunRef:
    """A run of which everything is over."""
    ref = d.queued_lane(jobs=jobs, run=run)
    for attempt in d.start(ref, jobs):
        d.finish(attempt)
    assert d.state(ref)["state"] == "completed"
    return ref


def left_of(d: Deployment, ref: RunRef) -> set[str]:
    """The parts of a run that Redis still has."""
    return {
        key.decode().rpartition(":")[2]
        for key in d.redis.scan_iter(count=1000)
        if f":{ref.run}:" in key.decode()
    }


def leave(d: Deployment, ref: RunRef) -> StubOutcome:
    return ArchiveStubs(d.redis, d.keys).leave(ref, int(d.state(ref).get("finished_ms", 0)), d.now_ms)


def test_an_archived_run_leaves_its_state_and_its_plan(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = completed(d)
    real_redis.hset(d.keys.memory(ref), "register:x", "y")
    real_redis.hset(d.keys.sessions(ref), "0:0", 1)
    for key in (d.keys.memory(ref), d.keys.sessions(ref)):
        real_redis.pexpire(key, TTL_MS)
    before = d.state(ref)
    assert {"results", "finished", "done", "spec", "rows", "memory", "sessions"} < left_of(d, ref)
    assert leave(d, ref) is StubOutcome.STUB
    assert left_of(d, ref) == {"state", "plan"}
    assert d.state(ref) == before | {"archived": str(d.now_ms)}


def test_a_stub_expires_when_its_run_would_have(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = completed(d)
    leave(d, ref)
    assert all(0 < real_redis.pttl(key) <= TTL_MS for key in (d.keys.state(ref), d.keys.plan(ref)))


def test_leaving_a_stub_twice_changes_nothing(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = completed(d)
    assert leave(d, ref) is StubOutcome.STUB
    before = read_contents(real_redis)
    d.advance(5)
    assert leave(d, ref) is StubOutcome.STUB_BEFORE
    assert read_contents(real_redis) == before


def test_a_running_run_leaves_no_stub(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=3)
    before = read_contents(real_redis)
    assert leave(d, ref) is StubOutcome.NOT_FINISHED
    assert read_contents(real_redis) == before
    d.cancel(ref)
    assert leave(d, ref) is StubOutcome.STUB


def test_a_run_that_finished_at_another_time_than_was_copied_leaves_no_stub(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = completed(d)
    before = read_contents(real_redis)
    assert (
        ArchiveStubs(real_redis, d.keys).leave(ref, int(d.state(ref)["finished_ms"]) - 1)
        is StubOutcome.NOT_FINISHED
    )
    assert read_contents(real_redis) == before


def test_a_run_that_is_not_there_leaves_no_stub(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    assert ArchiveStubs(real_redis, d.keys).leave(RunRef("search", "gone"), 0) is StubOutcome.NO_RUN
    assert not real_redis.exists(d.keys.state(RunRef("search", "gone")))


@given(acts=st.lists(st.sampled_from(["finish", "cancel", "leave", "late"]), max_size=8))
def test_results_are_removed_only_from_finished_runs_and_all_at_once(
    real_server: Redis, acts: list[str]
) -> None:
    d = Deployment(emptied(real_server))
    ref = d.queued_lane(jobs=2)
    flying, reported = d.start(ref, 2), 0
    for act in acts:
        if act == "finish" and reported < 2:
            d.finish(flying[reported])
            reported += 1
        elif act == "cancel":
            d.cancel(ref)
        elif act == "late":
            d.finish(flying[0], worker="somebody else")
        else:
            leave(d, ref)
        state = d.state(ref)
        if "archived" in state:
            assert state["state"] in ("completed", "cancelled")
            assert left_of(d, ref) == {"state", "plan"}
        else:
            assert {"state", "plan", "spec", "rows"} <= left_of(d, ref)
            assert real_server.hlen(d.keys.results(ref)) == int(state.get("n:succeeded", 0))
    d.cancel(ref)
