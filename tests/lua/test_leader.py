"""One leader at a time, and every change of it starts an epoch that was never there before."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.core.clock import ManualClock
from fairlane.store.keys import Keys
from fairlane.store.write.leader import LeaderLease
from tests.support.deployment import Deployment
from tests.support.redis import emptied

LEASE_MS = 3000


def _bidders(redis: Redis) -> tuple[ManualClock, dict[str, LeaderLease]]:
    return ManualClock(), {name: LeaderLease(redis, Keys("test"), name, LEASE_MS) for name in "abc"}


def test_a_standby_waits_until_the_lease_has_lapsed(real_redis: Redis) -> None:
    clock, bid = _bidders(real_redis)
    won = bid["a"].acquire(clock.now_ms())
    assert (won.epoch, won.until_ms) == (1, clock.now_ms() + LEASE_MS)
    clock.advance(2.999)
    refused = bid["b"].acquire(clock.now_ms())
    assert (refused.epoch, refused.until_ms) == (0, won.until_ms)
    clock.advance(0.001)
    assert bid["b"].acquire(clock.now_ms()).epoch == 2


def test_renewing_keeps_the_epoch_and_a_late_renewal_starts_another(real_redis: Redis) -> None:
    clock, bid = _bidders(real_redis)
    epochs = []
    for seconds in (1, 2.9, 2.9, 3, 10):
        epochs.append(bid["a"].acquire(clock.now_ms()).epoch)
        clock.advance(seconds)
    assert epochs == [1, 1, 1, 1, 2]


def test_a_resigning_leader_is_replaced_at_once_and_only_the_leader_can_resign(real_redis: Redis) -> None:
    clock, bid = _bidders(real_redis)
    bid["a"].acquire(clock.now_ms())
    assert not bid["b"].resign()
    assert bid["b"].acquire(clock.now_ms()).epoch == 0
    assert bid["a"].resign()
    assert bid["b"].acquire(clock.now_ms()).epoch == 2
    assert not bid["a"].resign()


def test_a_leader_whose_lease_has_lapsed_is_refused_although_no_other_leads(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane()
    d.elect("scheduler-1", lease_ms=LEASE_MS)
    assert len(d.ask(ref, count=1).permits) == 1
    d.advance(LEASE_MS)
    offers = d.lanes.grant("sim:fast", d.epoch, [], room=1, max_in_flight=1, lease_ms=1, now_ms=d.now_ms)
    assert offers is None
    assert d.cancel(ref) == -1


def test_two_schedulers_of_one_name_never_lead_together(real_redis: Redis) -> None:
    clock = ManualClock()
    first, second = (LeaderLease(real_redis, Keys("test"), "a", LEASE_MS, token) for token in ("1", "2"))
    won = first.acquire(clock.now_ms())
    assert won.epoch == 1
    refused = second.acquire(clock.now_ms())
    assert (refused.epoch, refused.until_ms) == (0, won.until_ms)
    assert not second.resign()
    assert first.acquire(clock.now_ms()).epoch == 1
    assert first.resign()
    assert second.acquire(clock.now_ms()).epoch == 2
    assert first.acquire(clock.now_ms()).epoch == 0


def test_a_scheduler_of_a_version_without_tokens_is_fenced_out_as_any_other(real_redis: Redis) -> None:
    clock, new = ManualClock(), LeaderLease(real_redis, Keys("test"), "b", LEASE_MS, "1")
    new.acquire(clock.now_ms())
    clock.advance(3)
    until_ms = clock.now_ms() + LEASE_MS
    real_redis.hset(Keys("test").leader, mapping={"id": "a", "epoch": 2, "until_ms": until_ms})
    assert new.acquire(clock.now_ms()).epoch == 0, "it left the token of the leader before it"
    assert not new.resign()


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    acts=st.lists(
        st.tuples(st.sampled_from("abc"), st.booleans(), st.sampled_from([0, 1, 1500, 2999, 3000, 9000])),
        max_size=30,
    )
)
def test_never_two_leaders_and_an_epoch_has_one_holder(real_redis: Redis, acts: list[Any]) -> None:
    clock, bid = _bidders(emptied(real_redis))
    until = dict.fromkeys("abc", 0)
    holders: dict[int, str] = {}
    for who, resigns, wait_ms in acts:
        clock.advance(wait_ms / 1000)
        now = clock.now_ms()
        leading = [name for name, lapses in until.items() if lapses > now]
        assert len(leading) <= 1
        if resigns:
            # Whoever led last may resign, though its lease has lapsed.
            bid[who].resign()
            until[who] = 0
            continue
        answer = bid[who].acquire(now)
        assert (answer.epoch > 0) == (leading in ([], [who]))
        if answer.epoch:
            assert holders.setdefault(answer.epoch, who) == who
            assert answer.epoch == max(holders)
            until[who] = answer.until_ms


def test_a_leader_whose_epoch_redis_has_lost_starts_another(real_redis: Redis) -> None:
    """It held the lease without an epoch for good, and so did nobody lead."""
    clock, bid = _bidders(real_redis)
    bid["a"].acquire(clock.now_ms())
    real_redis.hdel(Keys("test").leader, "epoch")
    assert bid["b"].acquire(clock.now_ms()).epoch == 0
    assert bid["a"].acquire(clock.now_ms()).epoch == 1
