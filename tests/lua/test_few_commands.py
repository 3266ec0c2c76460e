"""Scripts of the hot path send Redis few commands, however many calls they are of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from fairlane.model.ending import Completion
from fairlane.model.job import Feedback, JobState
from fairlane.model.tokens import Usage
from fairlane.store.script import merged
from fairlane.store.write.permits import Offer
from fairlane.store.write.workers import WorkerInfo
from tests.support.deployment import LEASE_MS, Deployment

INFO = WorkerInfo("w1", slots=4, lanes=("sim:fast",), version="1", pid=7, host="h", started_ms=1)


def sent(redis: Redis, act: Callable[[], object]) -> Counter[str]:
    """How often Redis ran each command while ``act`` ran."""

    def counts() -> Counter[str]:
        return Counter({name[8:]: int(each["calls"]) for name, each in redis.info("commandstats").items()})

    before = counts()
    act()
    return counts() - before


def test_a_grant_writes_the_leases_of_all_its_permits_together(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=20)
    found = sent(real_redis, lambda: d.take(ref, 20))
    assert (found["lpop"], found["zadd"], found["hincrby"]) == (20, 1, 2)
    assert found["hset"] <= 4
    assert d.leases.count() == 20
    assert real_redis.hget(d.keys.state(ref), "in_flight") == b"20"


def test_a_job_that_was_queued_twice_gets_two_numbers_in_one_grant(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=1)
    queue = d.keys.fresh(ref, "sim:fast")
    real_redis.rpush(queue, real_redis.lindex(queue, 0))
    assert [(attempt.job, attempt.number) for attempt in d.take(ref, 2)] == [(0, 1), (0, 2)]
    assert d.leases.count() == 2


def test_a_run_whose_state_fails_takes_no_job_from_the_run_before_it(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    good = d.queued_lane(jobs=3)
    bad = d.submit(run="r2", rows=1)
    d.feed(bad, 1)
    real_redis.set(d.keys.state(bad), "x")
    with pytest.raises(ResponseError):
        d.ask([Offer(good, 3), Offer(bad, 1)])
    assert d.leases.count() == 0
    assert d.hash(d.keys.jobs(good)) == {}
    assert real_redis.llen(d.keys.fresh(good, "sim:fast")) == 3


@pytest.mark.parametrize("held", [7, 1205])
def test_a_beat_keeps_a_thousand_leases_in_one_step(real_redis: Redis, held: int) -> None:
    d = Deployment(real_redis)
    attempts = [attempt.id for attempt in d.start(d.queued_lane(jobs=held), held)]
    beat = d.workers.beat("w1", INFO, [*attempts, "lost"], LEASE_MS, changed=False, now_ms=d.now_ms)
    steps = -(-(held + 1) // 1000)
    found = sent(real_redis, lambda: beat.run(real_redis) == [b"lost"])
    assert (found["zadd"], found["hget"]) == (steps, 0)
    assert beat.run(real_redis) == [b"lost"]


def test_reports_that_share_a_script_read_their_lane_once(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ends = [
        d.attempts.finish(
            each, "w1", Feedback("ok", Usage(1, 1)), Completion(JobState.SUCCEEDED, "[]"), took_ms=300
        )
        for each in d.start(d.queued_lane(jobs=8), 8)
    ]
    found = sent(real_redis, lambda: merged(ends).run(real_redis))
    assert found["hgetall"] == 2  # the lane, and its limits
    assert found["hlen"] == 0  # nothing but these is held


def test_a_damaged_entry_takes_no_job_that_its_grant_began_with(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=3)
    real_redis.lset(d.keys.fresh(ref, "sim:fast"), 2, "damaged")
    with pytest.raises(ResponseError):
        d.take(ref, 3)
    assert d.leases.count() == 2
