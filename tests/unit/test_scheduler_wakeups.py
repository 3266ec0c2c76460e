"""Marks: each taken once, by the leader alone, whatever characters a lane's name has."""

from __future__ import annotations

import pytest
from redis import Redis

from fairlane.model.run import RunRef
from fairlane.store.keys import Keys
from fairlane.store.write import leader as marking
from fairlane.store.write.leader import NotLeader, Wakeups

KEYS, EPOCH = Keys("test"), 3


@pytest.fixture
def wakeups(fake_redis: Redis) -> Wakeups:
    fake_redis.hset(KEYS.leader, "epoch", str(EPOCH))
    return Wakeups(fake_redis, KEYS)


def test_lanes_work_and_workers_are_distinguished(fake_redis: Redis, wakeups: Wakeups) -> None:
    fake_redis.sadd(KEYS.dirty, "sim:fast", "sim:slow|search/r1", "*")

    marks = wakeups.take(EPOCH)

    assert marks.lanes >= {"sim:fast", "sim:slow"}
    assert marks.work == [("sim:slow", RunRef("search", "r1"))]
    assert (marks.workers, marks.more) == (True, False)


def test_a_mark_is_taken_once(fake_redis: Redis, wakeups: Wakeups) -> None:
    fake_redis.sadd(KEYS.dirty, "sim:fast")

    assert wakeups.take(EPOCH).lanes == {"sim:fast"}
    assert wakeups.take(EPOCH).lanes == set()


@pytest.mark.parametrize("lane", ["odd|lane", "a|b/c", "x||", "sim:é|ü", "|", "a|b c/d"])
def test_a_lane_with_a_bar_in_its_name_is_found(fake_redis: Redis, wakeups: Wakeups, lane: str) -> None:
    fake_redis.sadd(KEYS.dirty, lane)
    assert lane in wakeups.take(EPOCH).lanes

    fake_redis.sadd(KEYS.dirty, f"{lane}|search/r1")
    marks = wakeups.take(EPOCH)

    assert lane in marks.lanes
    assert (lane, RunRef("search", "r1")) in marks.work


def test_a_non_leader_takes_no_marks_and_wakes_the_leader(fake_redis: Redis, wakeups: Wakeups) -> None:
    fake_redis.sadd(KEYS.dirty, "sim:fast", "*")
    with fake_redis.pubsub(ignore_subscribe_messages=True) as channel:
        channel.subscribe(KEYS.wake)
        channel.get_message()

        with pytest.raises(NotLeader):
            wakeups.take(EPOCH - 1)

        assert fake_redis.smembers(KEYS.dirty) == {b"sim:fast", b"*"}
        assert channel.get_message() is not None


def test_a_redis_that_forgot_the_leader_has_none(fake_redis: Redis, wakeups: Wakeups) -> None:
    fake_redis.delete(KEYS.leader)

    with pytest.raises(NotLeader):
        wakeups.take(EPOCH)


def test_marks_beyond_one_batch_are_left_for_the_next(
    fake_redis: Redis, wakeups: Wakeups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marking, "MARKS_AT_ONCE", 4)
    fake_redis.sadd(KEYS.dirty, *(f"lane{n}" for n in range(6)))

    first, second = wakeups.take(EPOCH), wakeups.take(EPOCH)

    assert (len(first.lanes), first.more) == (4, True)
    assert (len(second.lanes), second.more) == (2, False)
