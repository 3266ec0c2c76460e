"""Redis's clock steps, back or forward: lanes, leases and waits go on as if it had not."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.core.clock import CATCH_UP, TIME_FIELDS, ahead_at, time_at
from fairlane.model.run import RunRef
from fairlane.store.write.budgets import Budgets, period_of
from fairlane.store.write.permits import Offer
from fairlane.store.write.workers import WorkerInfo
from tests.support.deployment import LEASE_MS, Deployment, attempts_of
from tests.support.redis import emptied

LANE = "sim:fast"
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
BACK = (-1500, -120_000, -HOUR_MS, -400 * DAY_MS)


@dataclass(slots=True)
class Flow:
    """What a lane did for some seconds: calls that were sent, and permits that came too late."""

    sent: int = 0
    late: int = 0


def flow(d: Deployment, ref: RunRef, seconds: int, *, bids: bool = True) -> Flow:
    """The lane is asked ten times a second; each call is claimed at once. The leader bids each second."""
    found = Flow()
    for tenth in range(seconds * 10):
        d.advance(100)
        if bids and tenth % 10 == 0:
            d.bid()
        for attempt in attempts_of(d.ask(ref, count=5), [Offer(ref, 5)], LANE):
            claim = d.claim(attempt)
            assert claim is not None
            if claim.sendable:
                found.sent += 1
                d.finish(attempt)
            else:
                found.late += 1
                d.defer(attempt)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("back_ms", BACK)
@pytest.mark.parametrize("per_minute", [600, None, 0])
def test_a_lane_goes_on_when_the_clock_steps_back(
    real_redis: Redis, per_minute: int | None, back_ms: int
) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=4000, requests_per_minute=per_minute)
    before = flow(d, ref, 10)
    d.step(back_ms)
    after = flow(d, ref, 10)
    assert after.late == 0
    assert after.sent >= 0.8 * before.sent  # until the next bid time stands still


def test_a_configured_limit_holds_while_the_clock_steps_back_and_forth(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=4000, requests_per_minute=600, burst_seconds=1.0)
    sent = flow(d, ref, 5).sent
    for back_ms in (-HOUR_MS, -5000, -HOUR_MS, -800):
        d.step(back_ms)
        sent += flow(d, ref, 5).sent
    assert 200 <= sent <= 25 * 10 + 10


def test_a_forward_step_refills_a_bucket_and_no_more(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=4000, requests_per_minute=600, burst_seconds=1.0)
    flow(d, ref, 5)
    d.step(HOUR_MS)
    ahead = flow(d, ref, 5)
    d.step(-HOUR_MS)
    again = flow(d, ref, 5)
    assert (ahead.late, again.late) == (0, 0)
    assert 35 <= again.sent <= 50 <= ahead.sent <= 60


def test_a_failover_to_a_server_whose_clock_is_behind_delays_nothing(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=4000, requests_per_minute=600)
    flow(d, ref, 10)
    d.step(-120_000)
    d.bid()
    d.lanes.drain(LANE, d.redis_ms)
    after = flow(d, ref, 30)
    assert after.late <= 1  # claimed within the second that the latest bid did not see
    assert after.sent >= 240


def test_after_a_step_back_time_stands_still_until_the_leader_bids_and_no_event_is_late(
    real_redis: Redis,
) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=4000, requests_per_minute=600)
    flow(d, ref, 5)
    d.bid()
    d.step(-HOUR_MS)
    unnoticed = flow(d, ref, 1, bids=False)
    assert unnoticed.late == 0
    assert d.bid().stepped_ms == HOUR_MS - 1000
    assert d.bid().stepped_ms == 0
    assert flow(d, ref, 5).sent >= 45


def test_a_lease_lapses_as_if_the_clock_had_not_stepped(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=3)
    [attempt, beaten, later] = d.take(ref, 3)
    d.claim(attempt)
    d.claim(beaten, "w2")
    d.bid()
    d.step(-HOUR_MS)
    d.claim(later, "w3")  # nobody has bid since
    info = WorkerInfo("w2", slots=4, lanes=(), version="1", pid=1, host="h", started_ms=0)
    d.bid()
    for _ in range(2):
        d.advance(LEASE_MS // 2)
        d.bid()
        beat = d.workers.beat("w2", info, [beaten.id], LEASE_MS, changed=False, now_ms=d.redis_ms)
        assert beat.run(d.redis) == []
    assert d.leases.lapsed(d.now_ms) == []
    d.advance(200)  # time runs 1 % slow
    assert {each.attempt.id for each in d.leases.lapsed(d.now_ms)} == {attempt.id, later.id}
    assert [d.recover(each.attempt) for each in d.leases.lapsed(d.now_ms)] == [1, 1]


@pytest.mark.parametrize("signal", ["limited", "server_error"])
def test_blocks_and_pauses_end_as_if_the_clock_had_not_stepped(real_redis: Redis, signal: str) -> None:
    waits = []
    for back_ms in (0, -HOUR_MS):
        d = Deployment(emptied(real_redis))
        ref = d.queued_lane(jobs=100)
        for attempt in d.start(ref, 20):
            d.defer(attempt, signal=signal, retry_after_ms=5000 if signal == "limited" else None)  # type: ignore[arg-type]
        assert not d.ask(ref).permits
        d.bid()
        d.step(back_ms)
        d.bid()
        waits.append(d.ask(ref).wait_ms)
        d.advance(round(waits[0] * 1.02))
        assert d.ask(ref).permits
    assert waits[0] == waits[1] > 0


def test_a_delayed_job_is_due_as_if_the_clock_had_not_stepped(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    [attempt] = d.start(d.queued_lane(jobs=1))
    d.defer(attempt, delay_ms=5000)
    d.bid()
    d.step(-HOUR_MS)
    d.bid()
    d.advance(4900)
    assert d.promote() == 0
    d.advance(200)
    assert d.promote() == 1


def test_a_standby_leads_one_lease_after_the_leader_died_at_the_step(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    d.elect("scheduler-1", lease_ms=3000)
    standby = d.leader("scheduler-2", 3000)
    d.step(-HOUR_MS)
    epochs = []
    for _ in range(5):
        epochs.append(standby.acquire(d.redis_ms).epoch)
        d.advance(1000)
    assert epochs == [0, 0, 0, 0, d.epoch + 1]


def test_a_budgets_day_follows_the_stepped_clock(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref, budgets = d.queued_lane(jobs=9), Budgets(d.redis, d.keys)
    budgets.set("search", "day", {"requests": 2})
    d.advance(period_of("day", d.redis_ms).end_ms - d.redis_ms - HOUR_MS)
    d.bid()
    d.step(-2 * HOUR_MS)
    d.bid()
    assert len(d.take(ref, 9)) == 2
    [delay] = d.ask(ref).delayed
    [allowance] = budgets.of(["search"], d.now_ms)
    assert (allowance.used, allowance.period) == (2, period_of("day", d.redis_ms))
    assert abs(delay.until_ms - d.now_ms - 3 * HOUR_MS) < 5
    d.advance(3 * HOUR_MS - 1000)
    assert not d.take(ref, 9)
    d.advance(2000)
    assert len(d.take(ref, 9)) == 2
    assert [each.used for each in budgets.of(["search"], d.now_ms)] == [2]


MOVES = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 99, 1000, 30_000, HOUR_MS]),
        st.sampled_from([0, 0, 0, -1, -999, -1001, -120_000, -HOUR_MS, 5000, HOUR_MS]),
        st.booleans(),
    ),
    max_size=30,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(MOVES)
def test_time_never_goes_back_and_every_reader_sees_the_same(
    real_redis: Redis, moves: list[tuple[int, int, bool]]
) -> None:
    d = Deployment(emptied(real_redis))
    d.lane(LANE)
    seen = d.now_ms
    for passed_ms, step_ms, noticed in moves:
        d.step(step_ms)
        if noticed:
            d.bid()
        d.advance(passed_ms)
        d.bid()
        grant = d.ask([])
        assert grant.now_ms == d.now_ms >= seen
        assert d.now_ms >= d.redis_ms
        noted = d.redis.hmget(d.keys.clock, *TIME_FIELDS)
        assert abs(ahead_at(d.now_ms, noted) - time_at(d.redis_ms, noted).ahead_ms) <= 1
        seen = grant.now_ms


def test_stored_time_that_is_ahead_returns_to_the_clock(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    d.step(-10_000)
    d.bid()
    assert d.now_ms - d.redis_ms == 10_000
    d.advance(10_000 * CATCH_UP // 2)
    assert d.now_ms - d.redis_ms == 5000
    d.advance(10_000 * CATCH_UP // 2)
    d.bid()
    assert d.now_ms == d.redis_ms
    d.advance(HOUR_MS)
    assert d.now_ms == d.redis_ms
