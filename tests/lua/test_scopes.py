"""Only the leader saves scopes: it resumes parked lanes and changes nothing else. A connection that leaves a
lane starts from what the lane has learned, and from nothing else of it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.store.write.audit import Act, AuditLog, Auditor
from fairlane.store.write.lanes.lane_memory import LEARNED
from fairlane.store.write.scopes import Scope, Scopes
from tests.support.deployment import Deployment
from tests.support.redis import emptied

LANES = ("a:m", "b:m", "c")
ME = Auditor("scheduler", "scheduler-1")
A, B = Scope("a", "0123456789ab", ("0123456789ab",)), Scope("a")
NEW = {"a": "ba9876543210"}


def scopes(d: Deployment) -> Scopes:
    return Scopes(d.redis, d.keys, ME)


def lane_state(d: Deployment, lane: str) -> dict[str, str]:
    stored = d.redis.hgetall(d.keys.lane(lane))
    return {name.decode(): value.decode() for name, value in stored.items()}


def fill(d: Deployment, lane: str, **fields: str | int | float) -> None:
    d.lane(lane)
    if fields:
        d.redis.hset(d.keys.lane(lane), mapping=fields)


def test_saved_scopes_are_read_by_the_next_leader(redis: Redis) -> None:
    d = Deployment(redis)
    left = replace(A, lanes="b", left="a", left_ms=7)
    assert scopes(d).save({"a": A, "b": B}, {}, [], d.epoch, d.now_ms) == []
    assert scopes(d).save({"a": None, "b": left}, {}, [], d.epoch, d.now_ms) == []
    assert scopes(d).read() == {"b": left}


def test_only_the_leader_saves_scopes(redis: Redis) -> None:
    d = Deployment(redis)
    fill(d, "a:m", parked="quota")
    old = d.epoch
    d.elect("scheduler-2")
    assert scopes(d).save({"a": A}, NEW, ["a:m"], old, d.now_ms) is None
    assert scopes(d).read() == {}
    assert d.lanes.view("a:m").parked == "quota"


def test_a_parked_lane_is_tried_with_one_call_and_audited(redis: Redis) -> None:
    d = Deployment(redis)
    ref = d.queued_lane(lane="a:m", jobs=3)
    d.redis.hset(d.keys.lane("a:m"), "parked", "Incorrect API key provided.")
    d.redis.delete(d.keys.audit, d.keys.dirty)
    assert not d.ask(ref, "a:m").permits
    assert scopes(d).save({"a": A}, NEW, ["a:m", "b:m"], d.epoch, d.now_ms) == ["a:m"]
    assert redis.smembers(d.keys.dirty) == {b"a:m"}
    assert len(d.ask(ref, "a:m").permits) == 1
    assert d.ask(ref, "a:m").reason == "probing"
    (entry,) = AuditLog(redis, d.keys).since()
    assert (entry.role, entry.who, entry.act, entry.what) == (
        "scheduler",
        ME.who,
        Act.CREDENTIAL_CHANGED,
        "a",
    )
    assert entry.detail == {"fingerprints": NEW, "opened": ["a:m"]}


def test_where_no_credential_has_changed_nothing_is_audited(redis: Redis) -> None:
    d = Deployment(redis)
    scopes(d).save({"a": A}, {}, [], d.epoch, d.now_ms)
    assert not redis.exists(d.keys.audit)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    states=st.fixed_dictionaries(
        {
            lane: st.fixed_dictionaries(
                {},
                optional={
                    "parked": st.sampled_from(["quota", "key"]),
                    "paused": st.just("1"),
                    "circuit": st.sampled_from(["open", "half-open", "closed"]),
                    "inflight": st.integers(0, 9).map(str),
                    "requests_est": st.integers(1, 999).map(str),
                },
            )
            for lane in LANES
        }
    ),
    concerned=st.sets(st.sampled_from(LANES)),
    leads=st.booleans(),
)
def test_only_parked_lanes_are_opened(
    redis: Redis, states: dict[str, dict[str, str]], concerned: set[str], leads: bool
) -> None:
    d = Deployment(emptied(redis))
    for lane, fields in states.items():
        fill(d, lane, **fields)
    epoch = d.epoch if leads else d.epoch + 1
    opened = scopes(d).save({"a": A}, NEW, sorted(concerned), epoch, d.now_ms)
    expected = {lane for lane in concerned if "parked" in states[lane]} if leads else set()
    assert (opened is None) == (not leads)
    assert set(opened or ()) == expected
    for lane, fields in states.items():
        now = lane_state(d, lane)
        if lane not in expected:
            assert now == fields
            continue
        probe = "half-open" if fields.get("circuit") == "half-open" else "open"
        assert ("parked" in now, now["circuit"]) == (False, probe)
        for kept in ("paused", "inflight", "requests_est"):
            assert now.get(kept) == fields.get(kept)


def test_a_lane_starts_from_anothers_estimates_with_empty_buckets(redis: Redis) -> None:
    d = Deployment(redis)
    d.unknown_lane()
    d.redis.hset(
        d.keys.lane("sim:fast"),
        mapping={
            "known_ms": d.now_ms,
            "requests_est": 300,
            "requests_var": 9,
            "requests_age_ms": 0,
            "inflight": 4,
        }
        | {"parked": "key", "paused": 1, "day_used": 77, "day_until_ms": d.now_ms + 1000, "granted": 50},
    )
    d.lane("new:fast", requests_per_minute=None)
    assert d.lanes.inherit("new:fast", "sim:fast", 0, d.now_ms)
    view = d.lanes.view("new:fast", d.now_ms)
    assert view.axes["requests"].learned == pytest.approx(300 * 0.97, rel=0.05)
    assert (view.in_flight, view.parked, view.paused) == (0, None, False)
    assert lane_state(d, "new:fast").get("day_used") is None
    assert view.axes["requests"].level == 0
    assert not d.lanes.inherit("new:fast", "sim:fast", 0, d.now_ms)


def test_an_unused_lane_has_no_estimates_to_copy(redis: Redis) -> None:
    d = Deployment(redis)
    fill(d, "a:m")
    fill(d, "b:m")
    assert not d.lanes.inherit("b:m", "a:m", 5, d.now_ms)
    assert lane_state(d, "b:m") == {}


fields = st.fixed_dictionaries(
    {}, optional={name: st.integers(1, 10**6).map(str) for name in LEARNED if "_by" not in name}
)
OWN = (
    "inflight",
    "granted",
    "parked",
    "paused",
    "circuit",
    "open_ms",
    "blocked_ms",
    "day_used",
    "spent_input",
)
own = st.fixed_dictionaries({}, optional={name: st.integers(1, 10**6).map(str) for name in OWN})


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(theirs=fields, mine=fields, state=own, other=own, used=st.booleans(), since_ms=st.integers(0, 3))
def test_learned_fields_are_copied_once_and_no_others(
    redis: Redis,
    theirs: dict[str, str],
    mine: dict[str, str],
    state: dict[str, str],
    other: dict[str, str],
    used: bool,
    since_ms: int,
) -> None:
    d = Deployment(emptied(redis))
    fill(d, "a:m", known_ms="1", **theirs, **other)
    fill(d, "b:m", **mine, **state, **({"known_ms": "2"} if used else {}))
    before = lane_state(d, "a:m")
    done = d.lanes.inherit("b:m", "a:m", since_ms, d.now_ms)
    assert done == (not used or since_ms > 0)
    after = lane_state(d, "b:m")
    wanted = theirs if done else mine
    assert {name: after[name] for name in LEARNED if name in after} == wanted
    assert {name: after[name] for name in OWN if name in after} == state
    assert lane_state(d, "a:m") == before
    assert not d.lanes.inherit("b:m", "a:m", since_ms, d.now_ms)
    assert lane_state(d, "b:m") == after
