"""Denied access parks a lane where it meets every call, and is the job's own where others are answered."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.decision import Cost
from fairlane.model.job import Attempt, Reported, Signal
from fairlane.model.run import RunRef
from fairlane.store.write.audit import Auditor
from fairlane.store.write.scopes import Scopes
from tests.support.deployment import Deployment
from tests.support.redis import emptied

THRESHOLD = 5
"""Failures, started apart, that open a circuit."""

MAX_ATTEMPTS, SECOND_MS = 3, 1000
LANE = "sim:fast"


def denied(d: Deployment, attempt: Attempt, cost: Cost = "unproven", max_attempts: int = 0) -> Reported:
    reported = d.defer(attempt, signal="refused", reason="invalid key", cost=cost, max_attempts=max_attempts)
    assert reported is not None
    return reported


def parked(d: Deployment) -> bool:
    return d.lanes.view(LANE, d.now_ms).parked is not None


def costs(d: Deployment, ref: RunRef, attempt: Attempt) -> tuple[int, int]:
    """The attempts and the unproven failures of a job."""
    record = d.redis.hget(d.keys.jobs(ref), str(attempt.job))
    assert isinstance(record, bytes)
    _, attempts, _, _, unproven, _ = (record.decode() + "::0:0").split(":")[:6]
    return int(attempts), int(unproven)


def answering_lane(d: Deployment, jobs: int = 100) -> RunRef:
    """A lane that has answered a call."""
    ref = d.queued_lane(jobs=jobs)
    d.finish(d.start_next(ref))
    d.advance(SECOND_MS)
    return ref


def test_a_lane_that_has_answered_nobody_is_parked_by_its_first_call(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    assert denied(d, d.start(d.queued_lane())[0]).news == "parked"
    assert parked(d)


def test_one_denied_call_leaves_a_lane_open_that_answers_others(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = answering_lane(d)
    stopped, other = d.start(ref, 2)

    assert denied(d, stopped).news == ""
    d.finish(other)

    assert not parked(d)
    assert len(d.ask(ref, count=3).permits) == 3


def test_a_lane_that_denies_every_call_opens_its_circuit_and_a_denied_probe_parks_it(
    real_redis: Redis,
) -> None:
    d = Deployment(real_redis)
    ref = answering_lane(d)

    news = [denied(d, d.start_next(ref)).news for _ in range(THRESHOLD)]
    assert news[-1] == "open"
    assert not parked(d)

    assert denied(d, d.start_next(ref)).news == "parked"
    assert d.lanes.view(LANE).parked == "invalid key"


def test_one_denied_probe_of_another_outage_parks_nothing(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = answering_lane(d)
    for _ in range(THRESHOLD):
        d.defer(d.start_next(ref), signal="broken")

    denied(d, d.start_next(ref))
    assert not parked(d)
    denied(d, d.start_next(ref))
    assert parked(d)


@pytest.mark.parametrize("stopped", [0, 1])
def test_a_lane_whose_first_calls_were_denied_and_answered_is_open(stopped: int, real_redis: Redis) -> None:
    """Whichever started first: had the answer come first, the lane would not have been parked."""
    d = Deployment(real_redis)
    calls = d.start(d.queued_lane(), 2)
    denied(d, calls.pop(stopped))
    reported = d.finish(calls.pop())
    assert reported is not None
    assert reported.news == "reopened"
    assert not parked(d)


@pytest.mark.parametrize("later", [False, True])
def test_a_lane_that_a_denied_probe_has_parked_is_opened_by_a_later_call_alone(
    later: bool, real_redis: Redis
) -> None:
    d = Deployment(real_redis)
    ref = answering_lane(d)
    [early] = d.start(ref)
    while not parked(d):
        denied(d, d.start_next(ref))
        d.advance(60)
    d.finish(d.start_next(ref, tries=40) if later else early)
    assert parked(d) is not later


def test_calls_denied_while_a_lane_was_parked_cost_nothing_once_it_is_resumed(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = answering_lane(d, jobs=THRESHOLD + 2)
    while not parked(d):
        denied(d, d.start_next(ref), max_attempts=MAX_ATTEMPTS)
    d.advance(SECOND_MS)
    d.lanes.resume(LANE, d.now_ms)
    d.finish(d.start_next(ref))

    claims = [d.claim(attempt) for attempt in d.take(ref)]
    assert claims
    assert {(claim.attempts, claim.unproven) for claim in claims if claim} == {(0, 0)}


def test_a_job_blocked_by_a_firewall_ends_although_no_other_call_starts_after_it(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = answering_lane(d, jobs=2)

    for attempts in range(1, MAX_ATTEMPTS):
        assert not denied(d, d.start_next(ref), "denied", MAX_ATTEMPTS).exhausted, attempts
    assert denied(d, d.start_next(ref), "denied", MAX_ATTEMPTS).exhausted == MAX_ATTEMPTS
    assert not parked(d)


def test_only_the_first_of_several_denied_jobs_is_charged_an_attempt(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = answering_lane(d, jobs=20)
    first, *others = d.start(ref, 4)

    denied(d, first, "denied")
    for attempt in others:
        denied(d, attempt, "denied")

    assert [costs(d, ref, each) for each in (first, *others)] == [(1, 0), (0, 1), (0, 1), (0, 1)]


MINUTES_OF_PROBES = [1, 1, 2, 4, 8, 16, 32, 60, 60]


def parked_lane(d: Deployment) -> RunRef:
    """A lane that has answered, and is parked since its account has no money."""
    ref = answering_lane(d)
    while not parked(d):
        denied(d, d.start_next(ref))
    return ref


def test_a_parked_lane_that_has_answered_sends_one_probe_at_a_time(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = parked_lane(d)
    for minutes in MINUTES_OF_PROBES:
        grant = d.ask(ref)
        assert (len(grant.permits), grant.reason) == (0, "parked")
        assert grant.wait_ms == pytest.approx(minutes * 60_000, rel=0.02)
        d.advance(grant.wait_ms - 1)
        assert not d.take(ref)
        d.advance(1)
        [probe] = d.start(ref)
        assert (d.take(ref), d.ask(ref).reason) == ([], "probing")
        assert parked(d)
        denied(d, probe)
    d.advance(3_600_000)
    reported = d.finish(d.start_next(ref))
    assert reported is not None
    assert reported.news == "reopened"
    assert not parked(d)
    d.advance(SECOND_MS)
    claims = [d.claim(attempt) for attempt in d.take(ref)]
    assert claims
    assert {(claim.attempts, claim.unproven) for claim in claims if claim} == {(0, 0)}


@pytest.mark.parametrize("signal", ["limited", "answered", "broken", "overloaded", "server_error"])
def test_only_an_answer_to_a_probe_opens_a_parked_lane(signal: Signal, real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = parked_lane(d)
    for _ in range(4):
        d.advance(d.ask(ref).wait_ms)
        [probe] = d.start(ref)
        d.defer(probe, signal=signal)
        assert parked(d)
        grant = d.ask(ref)
        assert (grant.reason, len(grant.permits)) == ("parked", 0)
        assert grant.wait_ms >= 60_000


def test_the_first_probe_goes_out_at_a_stated_date(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref, days_ms = answering_lane(d), 3 * 86_400_000
    while not parked(d):
        d.defer(
            d.start_next(ref), signal="refused", reason="no money", cost="unproven", retry_after_ms=days_ms
        )
    assert d.ask(ref).wait_ms == days_ms
    d.advance(days_ms)
    d.finish(d.start_next(ref))
    assert not parked(d)


def test_a_lane_that_was_never_answered_stays_parked(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane()
    denied(d, d.start(ref)[0])
    assert (d.ask(ref).reason, d.ask(ref).at_ms) == ("parked", 0)
    d.advance(86_400_000)
    assert not d.take(ref)


def test_a_lane_that_was_never_answered_with_its_new_key_stays_parked(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = parked_lane(d)
    scopes = Scopes(d.redis, d.keys, Auditor("scheduler", "scheduler-1"))
    assert scopes.save({}, {"sim": "ba9876543210"}, [LANE], d.epoch, d.now_ms) == [LANE]
    denied(d, d.start(ref)[0])
    assert (d.ask(ref).reason, d.ask(ref).at_ms) == ("parked", 0)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    denials=st.lists(st.booleans(), min_size=4, max_size=12),
    took_ms=st.integers(10, 3000),
    denied_ms=st.integers(1, 3000),
    at_once=st.integers(1, 8),
)
def test_a_lane_that_answers_most_calls_is_not_parked_and_one_that_denies_all_is_soon(
    denials: list[bool], took_ms: int, denied_ms: int, at_once: int, real_redis: Redis
) -> None:
    """Calls are denied in a repeated pattern of at most two in five, then all of them."""
    d = Deployment(emptied(real_redis))
    pattern = denials if sum(denials) * 5 <= 2 * len(denials) else [False]
    ref = answering_lane(d, jobs=400)
    called = Calls(d, ref, took_ms, denied_ms, at_once)

    for n in range(60):
        called.one(is_denied=pattern[n % len(pattern)])
    assert not parked(d)

    started = called.until_parked()
    assert started <= THRESHOLD + 2 * at_once + 3


class Calls:
    """So many calls at once on one lane, each of which ends after its time."""

    def __init__(self, d: Deployment, ref: RunRef, took_ms: int, denied_ms: int, at_once: int) -> None:
        self._d, self._ref, self._at_once = d, ref, at_once
        self._ms = {False: took_ms, True: denied_ms}
        self._ends: list[tuple[int, int, bool, Attempt]] = []
        self._started = 0

    def one(self, *, is_denied: bool) -> None:
        """Start a call once the lane and the other calls let it; none on a parked lane."""
        while len(self._ends) >= self._at_once:
            self._end_next()
        for _ in range(400):
            if (taken := self._d.take(self._ref, 1)) or parked(self._d):
                break
            if self._ends:
                self._end_next()
            else:
                self._d.advance(50)
        if not taken:
            assert parked(self._d)
            return
        assert self._d.claim(taken[0]) is not None
        self._started += 1
        ends_ms = self._d.now_ms + self._ms[is_denied]
        heapq.heappush(self._ends, (ends_ms, self._started, is_denied, taken[0]))

    def until_parked(self) -> int:
        """Deny every call from now on. Returns how many started until the lane was parked."""
        before = self._started
        while not parked(self._d):
            assert self._started - before < 100
            self.one(is_denied=True)
            if not self._d.ask(self._ref, count=0).permits and self._ends:
                self._end_next()
        return self._started - before

    def _end_next(self) -> None:
        ends_ms, _, is_denied, attempt = heapq.heappop(self._ends)
        self._d.advance(max(0, ends_ms - self._d.now_ms))
        if is_denied:
            denied(self._d, attempt)
        else:
            self._d.finish(attempt)


@pytest.mark.parametrize("answered", [False, True])
def test_a_worker_that_alone_is_denied_teaches_the_lane_nothing(answered: bool, real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = answering_lane(d) if answered else d.queued_lane(jobs=100)
    for _ in range(2 * THRESHOLD):
        attempt = d.start_next(ref)
        assert denied(d, attempt, "withdrawn", max_attempts=1).news == ""
        assert costs(d, ref, attempt) == (0, 0)
    view = d.lanes.view(LANE, d.now_ms)
    assert (view.parked, view.circuit, view.in_flight) == (None, "closed", 0)
    assert d.redis.hget(d.keys.state(ref), "retries") in (None, b"0")


def test_the_probe_of_a_worker_that_alone_is_denied_is_followed_by_another(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=100)
    denied(d, d.start_next(ref))
    d.lanes.resume(LANE, d.now_ms)
    for _ in range(3):
        denied(d, d.start_next(ref, tries=1), "withdrawn")
        assert not parked(d)
    reported = d.finish(d.start_next(ref, tries=1))
    assert reported is not None
    assert reported.news == "closed"
