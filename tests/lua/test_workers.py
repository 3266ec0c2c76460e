"""Heartbeats: they keep leases, tell which were lost, and wake the scheduler when capacity changes."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.job import Attempt
from fairlane.store.write.workers import WorkerInfo
from tests.support.conservation import Books
from tests.support.deployment import LEASE_MS, Deployment
from tests.support.redis import emptied

INFO = WorkerInfo("w1", slots=4, lanes=("sim:fast",), version="1.0", pid=7, host="h", started_ms=1, busy=2)


def _beat(d: Deployment, worker: str, attempts: list[str], *, changed: bool = False) -> list[str]:
    info = replace(INFO, name=worker)
    call = d.workers.beat(worker, info, attempts, LEASE_MS, changed=changed, now_ms=d.now_ms)
    return [name.decode() for name in call.run(d.redis)]


def test_a_heartbeat_renews_the_leases_that_the_worker_holds(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    attempt = d.start(d.queued_lane())[0]
    d.advance(LEASE_MS - 1)
    assert _beat(d, "w1", [attempt.id]) == []
    d.advance(LEASE_MS - 1)
    assert d.leases.lapsed(d.now_ms) == []
    assert d.redis.zscore(d.keys.leases, attempt.id) == d.now_ms + 1


def test_a_heartbeat_lists_lost_leases(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane()
    kept, taken, ended, given = d.start(ref, 4)
    others = d.start(ref, worker="w2")[0]
    d.recover(taken, dead_worker="w1")
    d.finish(ended)
    d.defer(given)
    asked = [attempt.id for attempt in (kept, taken, ended, given, others)]
    assert _beat(d, "w1", asked) == asked[1:]
    assert d.leases.count() == 2


def test_a_heartbeat_has_the_redis_servers_time(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    _beat(d, "w1", [])
    d.advance(1500)
    _beat(d, "w2", [])
    first, second = d.workers.beats(real_redis)
    assert (first.worker, first.info, second.beat_ms - first.beat_ms) == ("w1", INFO, 1500)


def test_only_a_changed_heartbeat_wakes_the_scheduler(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    _beat(d, "w1", [])
    assert d.dirty() == {"*"}
    _beat(d, "w1", [])
    assert d.dirty() == set()
    _beat(d, "w1", [], changed=True)
    assert d.dirty() == {"*"}
    assert d.workers.leave("w1").run(real_redis) == 1
    assert d.dirty() == {"*"}
    assert d.workers.leave("w1").run(real_redis) == 0
    assert d.dirty() == set()
    assert d.workers.beats(real_redis) == []


def test_a_heartbeat_of_a_newer_version_is_read(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    real_redis.hset(
        d.keys.workers,
        "w9",
        '5 {"name":"w9","slots":1,"lanes":[],"version":"9","pid":1,"host":"h","started_ms":0,"mood":"good"}',
    )
    [beat] = d.workers.beats(real_redis)
    assert (beat.worker, beat.beat_ms, beat.info.slots, beat.info.busy) == ("w9", 5, 1, 0)


SILENCE_MS = 5000
acts = st.lists(
    st.tuples(st.sampled_from(["beat", "claim", "recover"]), st.sampled_from([0, 1, 2000, 4999, 5000, 7000])),
    max_size=12,
)


@given(acts)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_lease_is_taken_only_if_its_worker_sends_no_heartbeats_then(
    real_redis: Redis, acts: list[tuple[str, int]]
) -> None:
    d = Deployment(emptied(real_redis))
    ref = d.queued_lane(jobs=12)
    beat_ms, claimed = -SILENCE_MS, dict[Attempt, int]()
    for act, wait_ms in acts:
        d.advance(wait_ms)
        if act == "beat":
            _beat(d, "w1", [attempt.id for attempt in claimed])
            beat_ms = d.now_ms
        elif act == "claim":
            claimed[d.start(ref, 1, worker="w1")[0]] = d.now_ms
        else:
            for attempt, since_ms in list(claimed.items()):
                lapsed = d.redis.zscore(d.keys.leases, attempt.id) <= d.now_ms
                silent = max(beat_ms, since_ms) + SILENCE_MS <= d.now_ms
                taken = d.recover(attempt, "w1", 99, worker_timeout_ms=SILENCE_MS)
                assert taken == int(lapsed or silent), (attempt, beat_ms, since_ms, d.now_ms)
                if taken:
                    del claimed[attempt]
            forgotten = d.workers.forget_silent(d.redis, "w1", SILENCE_MS, d.now_ms)
            assert not (forgotten and beat_ms + SILENCE_MS > d.now_ms)
            assert bool(d.workers.beats(d.redis)) == (beat_ms + SILENCE_MS > d.now_ms)
    Books(d.redis, d.keys).check()
