"""What a team may use in a day or a month is kept to, in any order of starts, ends, crashes and midnights."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.config.sections import Budget
from fairlane.core.errors import ConfigurationError
from fairlane.model.decision import Defer, RetryPolicy, decide
from fairlane.model.job import Attempt, Claim
from fairlane.model.outcome import Aborted
from fairlane.model.run import RunRef
from fairlane.model.tokens import Estimate, Usage
from fairlane.store.write.budgets import KEEP_MS, Allowance, Budgets, Per, period_of
from fairlane.store.write.permits import Offer
from tests.support.deployment import Deployment

FAST, SLOW = "sim:fast", "sim:slow"
PRICE = "2 8"  # millionths of a dollar for a token of input, of output
PERIODS: tuple[Per, ...] = ("day", "month")


def queued(d: Deployment, run: str = "r1", lane: str = FAST, jobs: int = 40, team: str = "search") -> RunRef:
    """A run with jobs of 60 tokens of input and 40 of output on a lane: $0.00044 each."""
    d.lane(lane)
    ref = d.submit(team, run, jobs)
    d.redis.hset(d.keys.state(ref), "price:0", PRICE)
    d.feed(ref, jobs, lane, Estimate(60, 40))
    return ref


def budgets(d: Deployment) -> Budgets:
    return Budgets(d.redis, d.keys)


def standing(d: Deployment, team: str = "search") -> dict[tuple[str, str, str], Allowance]:
    return {(each.lane, each.per, each.unit): each for each in budgets(d).of([team], d.now_ms)}


def used(d: Deployment, unit: str, per: str = "day", lane: str = "*") -> float:
    return standing(d)[lane, per, unit].used


def to_midnight(d: Deployment) -> None:
    d.advance(period_of("day", d.now_ms).end_ms - d.now_ms)


@dataclass(slots=True)
class Flight:
    """A call under way, and what its lease says it has reserved."""

    attempt: Attempt
    began_ms: int
    tokens: int
    claimed: bool


@dataclass(slots=True)
class Books:
    """What ought to be counted: by period, the requests and tokens that each call has reserved or used."""

    counted: dict[tuple[Per, str], dict[str, tuple[int, int]]] = field(default_factory=dict)

    def note(self, flight: Flight, requests: int, tokens: int) -> None:
        for per in PERIODS:
            period = period_of(per, flight.began_ms).name
            self.counted.setdefault((per, period), {})[flight.attempt.id] = (requests, tokens)

    def sums(self, per: Per, now_ms: int) -> tuple[int, int]:
        amounts = self.counted.get((per, period_of(per, now_ms).name), {}).values()
        return sum(each[0] for each in amounts), sum(each[1] for each in amounts)


def started(d: Deployment, ref: RunRef, lane: str) -> list[Flight]:
    """Up to five calls; every third is never claimed by its worker."""
    flights = []
    for attempt in d.take(ref, 5, lane):
        lease = json.loads(d.redis.hget(d.keys.leased, attempt.id) or "{}")
        claimed = attempt.job % 3 > 0 and d.claim(attempt) is not None
        flights.append(Flight(attempt, d.now_ms, lease["budget"]["taken"]["tokens"], claimed))
    return flights


def ended(d: Deployment, act: str, flight: Flight) -> tuple[int, int]:
    """End a call that way; the requests and tokens that budgets are to be charged for it."""
    attempt, whole = flight.attempt, (1, flight.tokens)
    if not flight.claimed or act in ("kill", "lapse"):
        if act == "lapse" or not flight.claimed:
            d.redis.zadd(d.keys.leases, {attempt.id: d.now_ms})
        assert d.recover(attempt, dead_worker="w1") > 0
        return whole if flight.claimed else (0, 0)
    match act:
        case "end":
            assert d.finish(attempt, used=flight.tokens)
            return whole
        case "end with less":
            assert d.finish(attempt, used=flight.tokens // 3)
            return 1, flight.tokens // 3
        case "half":  # one of the two counts is unknown
            assert d.finish(attempt, used=Usage(output_tokens=1) if attempt.job % 2 else Usage(1))
            return whole
        case "end untold":
            assert d.finish(attempt)
            return whole
        case "be limited":
            assert d.defer(attempt, signal="limited", rate_limited=True)
            return 0, 0
        case "break":
            assert d.defer(attempt, signal="broken", cost="attempt")
            return whole
        case _:
            assert d.defer(attempt)
            return 0, 0


ENDS = ("end", "end with less", "half", "end untold", "be limited", "break", "give back", "kill", "lapse")
ACTS = st.sampled_from(["start", "start", "start elsewhere", *ENDS, "cancel", "day", "month"])


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tokens=st.integers(100, 900),
    requests=st.integers(1, 12),
    month=st.integers(100, 2000),
    acts=st.lists(ACTS, min_size=5, max_size=40),
)
@pytest.mark.slow
def test_use_and_reservations_never_exceed_a_budget_and_none_is_lost(
    real_redis: Redis, tokens: int, requests: int, month: int, acts: list[str]
) -> None:
    real_redis.flushdb()
    d = Deployment(real_redis)
    here, there = queued(d, "r1", FAST, 60), queued(d, "r2", SLOW, 60)
    budgets(d).set("search", "day", {"tokens": tokens, "requests": requests})
    budgets(d).set("search", "month", {"tokens": month})
    books, flying = Books(), list[Flight]()
    for act in acts:
        d.advance(1000)
        if act in PERIODS:
            d.advance(period_of(act, d.now_ms).end_ms - d.now_ms)  # type: ignore[arg-type]
        elif act == "cancel":
            d.cancel(there)
            for flight in [each for each in flying if each.attempt.run == "r2"]:
                flying.remove(flight)
                books.note(flight, int(flight.claimed), flight.tokens * flight.claimed)
        elif act in ENDS:
            for flight in flying[:2]:
                flying.remove(flight)
                books.note(flight, *ended(d, act, flight))
        else:
            for flight in started(d, *((here, FAST) if act == "start" else (there, SLOW))):
                flying.append(flight)
                books.note(flight, 1, flight.tokens)
        today, this_month = books.sums("day", d.now_ms), books.sums("month", d.now_ms)
        assert (used(d, "requests"), used(d, "tokens"), used(d, "tokens", "month")) == (*today, this_month[1])
        assert today[0] <= requests
        assert today[1] <= tokens
        assert this_month[1] <= month


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(days=st.integers(0, 200_000), per=st.sampled_from(["day", "month"]), ms=st.integers(0, 86_399_999))
def test_periods_are_calendar_periods_in_utc(real_redis: Redis, days: int, per: Per, ms: int) -> None:
    real_redis.flushdb()
    d = Deployment(real_redis)
    midnight = period_of("day", d.now_ms).end_ms
    d.advance(midnight + days * 86_400_000 + ms - d.now_ms)
    d.elect("scheduler-2")
    ref = queued(d)
    budgets(d).set("search", per, {"requests": 1})
    grant = d.ask(ref)
    (kept,) = grant.delayed
    period = period_of(per, d.now_ms)
    assert (len(grant.permits), kept.bound, kept.until_ms) == (1, "team_budget", period.end_ms)
    assert used(d, "requests", per) == 1


def test_jobs_beyond_the_budget_wait_and_start_when_the_next_period_begins(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = queued(d)
    budgets(d).set("search", "day", {"requests": 3})
    grant = d.ask(ref)
    (kept,) = grant.delayed
    assert (len(grant.permits), grant.queued, kept.bound) == (3, [37], "team_budget")
    d.advance(kept.until_ms - d.now_ms - 1)
    assert d.take(ref) == []
    d.advance(1)
    assert len(d.take(ref)) == 3


def test_a_call_that_ends_after_midnight_counts_for_the_day_on_which_it_started(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = queued(d)
    budgets(d).set("search", "day", {"tokens": 100})
    budgets(d).set("search", "month", {"tokens": 1000})
    (late,) = d.start(ref)
    to_midnight(d)
    assert (used(d, "tokens"), used(d, "tokens", "month")) == (0, 100)
    d.start(ref)
    d.finish(late, used=10)
    assert (used(d, "tokens"), used(d, "tokens", "month")) == (100, 110)


def test_an_unused_reservation_is_refunded_and_wakes_waiting_lanes(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref, other = queued(d), queued(d, "r2", SLOW)
    budgets(d).set("search", "day", {"tokens": 150})
    (running,) = d.start(ref)
    assert d.take(ref) == d.take(other, lane=SLOW) == []
    assert standing(d)["*", "day", "tokens"].state == "used_up"
    d.dirty()
    d.finish(running, used=20)
    assert {FAST, SLOW} <= d.dirty()
    assert standing(d)["*", "day", "tokens"].state == "open"
    assert len(d.take(other, lane=SLOW)) == 1


def test_a_call_that_was_rejected_with_a_key_since_replaced_counts_nothing(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    budgets(d).set("search", "day", {"requests": 40, "tokens": 10**6})
    [attempt] = d.start(queued(d))
    decision = decide(Aborted("replaced", 401), Claim(0, 0, 0), RetryPolicy(), random.Random(0))
    assert isinstance(decision, Defer)
    d.defer(attempt, signal=decision.feedback.signal, cost=decision.cost, sent=True)
    assert (used(d, "requests"), used(d, "tokens")) == (0, 0)
    assert d.redis.hget(d.keys.lane(FAST), "circuit") in (None, b"closed")


def test_a_budget_of_one_lane_does_not_affect_the_others(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref, other = queued(d), queued(d, "r2", SLOW)
    budgets(d).set("search", "day", {"requests": 2}, lane=FAST)
    assert (len(d.take(ref)), len(d.take(other, lane=SLOW))) == (2, 40)


def test_a_delayed_team_delays_no_other(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref, other = queued(d), queued(d, "r2", team="ads")
    budgets(d).set("search", "day", {"requests": 1})
    grant = d.ask([Offer(ref, 3), Offer(other, 3)])
    assert [permit.offer for permit in grant.permits] == [0, 1, 1, 1]
    assert [(kept.offer, kept.bound) for kept in grant.delayed] == [(0, "team_budget")]


def test_several_runs_of_a_team_share_its_budget_within_one_grant(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    first, second = queued(d), queued(d, "r2")
    budgets(d).set("search", "day", {"requests": 5})
    grant = d.ask([Offer(first, 3), Offer(second, 3)])
    assert [permit.offer for permit in grant.permits] == [0, 0, 0, 1, 1]


def test_money_is_reserved_and_counted_by_the_prices_of_the_run(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = queued(d)
    budgets(d).set("search", "month", {"usd": 0.001})
    running = d.take(ref)
    assert len(running) == 2
    assert used(d, "usd", "month") == pytest.approx(0.00088)
    d.claim(running[0])
    d.finish(running[0], used=Usage(10, 5))
    assert used(d, "usd", "month") == pytest.approx(0.00044 + 0.00006)


def test_a_lanes_output_factor_does_not_count_for_budgets(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    d.lane(FAST, tokens_per_minute=10**6, output_factor=5)
    ref = d.submit()
    d.feed(ref, 5, FAST, Estimate(60, 40))
    budgets(d).set("search", "day", {"tokens": 200})
    assert len(d.take(ref)) == 2


def test_a_raised_budget_counts_at_once_and_its_use_stays(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = queued(d)
    budgets(d).set("search", "day", {"requests": 2})
    assert len(d.take(ref)) == 2
    d.dirty()
    budgets(d).set("search", "day", {"requests": 5})
    assert FAST in d.dirty()
    assert len(d.take(ref)) == 3


def test_a_budget_that_is_removed_and_set_again_keeps_its_use(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = queued(d)
    budgets(d).set("search", "day", {"requests": 5})
    (running, *_) = [attempt for attempt in d.take(ref, 4) if d.claim(attempt)]
    budgets(d).set("search", "day", {"requests": None})
    assert budgets(d).teams() == []
    assert 0 < real_redis.pttl(d.keys.budget("search")) <= KEEP_MS
    d.finish(running)
    budgets(d).set("search", "day", {"requests": 5})
    assert real_redis.ttl(d.keys.budget("search")) == -1
    assert used(d, "requests") == 4
    assert budgets(d).teams() == ["search"]


def test_a_number_set_while_running_stays_until_the_configuration_says_something_new(
    real_redis: Redis,
) -> None:
    d, stated = Deployment(real_redis), [Budget(per="day", tokens=100)]
    budgets(d).configure({"search": stated})
    budgets(d).set("search", "day", {"tokens": 300})
    budgets(d).configure({"search": stated})
    assert standing(d)["*", "day", "tokens"].most == 300
    budgets(d).configure({"search": [Budget(per="day", tokens=200)]})
    assert standing(d)["*", "day", "tokens"].most == 200
    budgets(d).configure({"search": []})
    assert standing(d) == {}


def test_use_from_earlier_periods_is_deleted(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = queued(d)
    budgets(d).set("search", "day", {"requests": 1})
    for _ in range(6):
        assert len(d.take(ref)) == 1
        to_midnight(d)
    fields = [name for name in d.hash(d.keys.budget("search")) if name.startswith("used ")]
    assert len(fields) == 2 * 3, "two days, each in three units"


def test_a_team_without_a_budget_has_no_hash_and_no_fields_in_its_leases(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    (attempt, *_) = d.take(queued(d))
    assert not real_redis.exists(d.keys.budget("search"))
    assert "budget" not in (d.lease(attempt) or {})


@pytest.mark.parametrize("limits", [{"tokens": 0}, {"usd": -1}, {"usd": float("nan")}, {"calls": 3}])
def test_an_invalid_budget_is_refused(real_redis: Redis, limits: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError):
        budgets(Deployment(real_redis)).set("search", "day", limits)
