"""Leadership: one at a time, renewed in time, fenced by its epoch, handed over without a gap."""

from __future__ import annotations

import pytest
from redis import Redis

from fairlane.core.clock import ManualClock
from fairlane.store.keys import Keys
from fairlane.store.write.leader import Leader, LeaderLease, NotLeader

LEASE_MS = 3000


class Candidate:
    def __init__(self, redis: Redis, clock: ManualClock, name: str) -> None:
        self.clock = clock
        self.leader = Leader(LeaderLease(redis, Keys("test"), name, LEASE_MS), LEASE_MS)

    def tick(self) -> bool:
        return self.leader.tick(self.clock.monotonic_ms(), self.clock.now_ms())

    def wait_ms(self) -> int:
        return self.leader.wait_ms(self.clock.monotonic_ms())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def first(fake_redis: Redis, clock: ManualClock) -> Candidate:
    return Candidate(fake_redis, clock, "first")


@pytest.fixture
def second(fake_redis: Redis, clock: ManualClock) -> Candidate:
    return Candidate(fake_redis, clock, "second")


def test_the_first_to_bid_leads_and_the_other_waits(first: Candidate, second: Candidate) -> None:
    assert first.tick()
    assert not second.tick()
    assert (first.leader.leads, second.leader.leads) == (True, False)
    assert first.wait_ms() == second.wait_ms() == LEASE_MS // 3


def test_a_renewal_keeps_the_epoch_and_starts_no_new_term(first: Candidate, clock: ManualClock) -> None:
    first.tick()
    epoch = first.leader.epoch
    for _ in range(10):
        clock.advance(1)
        assert not first.tick()
    assert first.leader.epoch == epoch


def test_no_scheduler_bids_before_the_lease_is_due(first: Candidate, clock: ManualClock) -> None:
    first.tick()
    clock.advance(0.999)
    assert not first.tick()
    assert first.wait_ms() == 1


def test_a_leader_renews_amid_a_pass_once_an_interval(
    first: Candidate, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    first.tick()
    bids = list[int]()
    monkeypatch.setattr(first.leader, "confirm", bids.append)
    for _ in range(8):
        clock.advance(0.5)
        first.leader.renew(clock.monotonic_ms(), clock.now_ms())
    assert len(bids) == 4


def test_a_silent_leader_is_replaced_and_learns_of_it(
    first: Candidate, second: Candidate, clock: ManualClock
) -> None:
    first.tick()
    clock.advance(LEASE_MS / 1000)
    assert second.tick()
    assert not first.tick()

    assert second.leader.epoch == 2
    assert not first.leader.leads


def test_a_leader_that_lapsed_alone_begins_a_new_term(first: Candidate, clock: ManualClock) -> None:
    first.tick()
    clock.advance(60)

    assert first.tick()
    assert first.leader.epoch == 2


def test_a_leader_that_resigns_is_replaced_at_once(first: Candidate, second: Candidate) -> None:
    first.tick()
    first.leader.resign()

    assert second.tick()
    assert not first.leader.leads


def test_a_standby_that_stops_changes_nothing(first: Candidate, second: Candidate) -> None:
    first.tick()
    second.tick()
    second.leader.resign()

    first.leader.confirm(first.clock.now_ms())


def test_a_deposed_leader_bids_at_once(first: Candidate, clock: ManualClock) -> None:
    first.tick()
    first.leader.deposed()

    assert first.wait_ms() == 0
    assert first.tick()


def test_confirming_renews_the_lease(first: Candidate, second: Candidate, clock: ManualClock) -> None:
    first.tick()
    clock.advance(2)
    first.leader.confirm(clock.now_ms())
    clock.advance(2)

    assert not second.tick()


@pytest.mark.parametrize("replaced", [True, False])
def test_a_term_that_has_ended_cannot_be_confirmed(
    first: Candidate, second: Candidate, clock: ManualClock, replaced: bool
) -> None:
    first.tick()
    clock.advance(LEASE_MS / 1000)
    if replaced:
        second.tick()

    with pytest.raises(NotLeader):
        first.leader.confirm(clock.now_ms())
