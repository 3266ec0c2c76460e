"""Calls that share scripts, at the server's time, act as the same calls one by one: in any history."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.decision import Cost, Defer
from fairlane.model.ending import Completion, ReadyJob
from fairlane.model.hints import AxisHint, Hints
from fairlane.model.job import Attempt, Feedback, JobState, Signal
from fairlane.model.run import Bounds, Plan, RunRef
from fairlane.model.tokens import Estimate, Usage
from fairlane.store.preludes import Preludes
from fairlane.store.script import Call, Placed
from fairlane.store.write.budgets import Budgets
from fairlane.store.write.permits import Offer
from tests.lua.test_headers import FOLDER
from tests.lua.test_merged_calls import RECORD, alone, near, together
from tests.support.contents import read_contents
from tests.support.deployment import LEASE_MS, PLENTY, SPENT, Deployment, attempts_of, entry, make_spec
from tests.support.redis import emptied

FAST, SLOW = LANES = ("sim:fast", "sim:slow")
LATER_MS = 2 * 10**12
"""The deployment's time is the latest bid's if that is later than TIME: it stands still between two bids."""

SIGNALS: tuple[Signal, ...] = (
    "ok",
    "ok",
    "ok",
    "answered",
    "limited",
    "overloaded",
    "server_error",
    "broken",
)
COSTS: tuple[Cost, ...] = ("nothing", "unproven", "attempt", "denied", "rejected", "control", "withdrawn")
HINTS = Hints({"requests": AxisHint(600, 20, 2000), "tokens": AxisHint(90_000, 100, None)})

TEXTS = set(re.findall(r"(\w+) = true", Preludes(FOLDER / "lib").files["lane/state"].text))

Act = Callable[[Deployment, Attempt], Call]
Send = Callable[[Redis, Sequence[Call]], list[Any]]


def is_text(value: bytes) -> bool:
    """Whether a field's value is neither empty nor a number."""
    return bool(value) and not re.fullmatch(rb"-?(\d+(\.\d+)?(e[+-]\d+)?|inf|nan)", value)


feedback = st.builds(
    Feedback,
    st.sampled_from(SIGNALS),
    st.builds(Usage, st.none() | st.integers(0, 300), st.integers(0, 300)),
    st.sampled_from([None, None, 40, 3000]),
    st.sampled_from(["", "429", "0x10", " 7", "nan", "no such row"]),
    st.sampled_from([None, None, HINTS]),
    refusal=st.sampled_from(["", "", "400 no"]),
    sent=st.sampled_from([True, True, True, False]),
)
workers = st.sampled_from(["w1", "w1", "w1", "w1", "w2"])
served = st.sampled_from(["", "", "served:m-1"])


@st.composite
def finishes(draw: st.DrawFn) -> Act:
    worker, told, took_ms, name = (
        draw(workers),
        draw(feedback),
        draw(st.sampled_from([None, 7, 900])),
        draw(served),
    )
    state = draw(st.sampled_from([JobState.SUCCEEDED, JobState.SUCCEEDED, JobState.FAILED]))

    def act(d: Deployment, attempt: Attempt) -> Call:
        judged = attempt.run == "r2" and attempt.job % 2 == 0 and state is JobState.SUCCEEDED
        follow = (ReadyJob(entry(attempt.job + 1, 5), SLOW),) if judged else ()
        done = Completion(state, RECORD, follow)
        return d.attempts.finish(attempt, worker, told, done, took_ms=took_ms, served=name)

    return act


@st.composite
def defers(draw: st.DrawFn) -> Act:
    worker, handle = draw(workers), draw(st.sampled_from([None, None, "h-1"]))
    decision = draw(
        st.builds(
            Defer,
            feedback,
            st.sampled_from([0, 0, 1, 700]),
            st.sampled_from(COSTS),
            st.booleans(),
            st.sampled_from([0, 2, 5]),
        )
    )
    return lambda d, attempt: d.attempts.defer(attempt, worker, decision, handle=handle)


def recovery(d: Deployment, attempt: Attempt) -> Call:
    ended = Completion(JobState.FAILED, SPENT)
    return d.attempts.recover(
        attempt, d.epoch, worker="w1", worker_timeout_ms=0, max_attempts=3, completion=ended
    )


acts = st.lists(
    st.tuples(st.integers(0, 30), finishes() | finishes() | defers() | defers() | st.just(recovery)),
    max_size=16,
)
steps = st.lists(
    st.tuples(st.sampled_from([1, 50, 900, 20_000]), st.integers(1, 6), acts), min_size=1, max_size=7
)


def begun(redis: Redis) -> tuple[Deployment, list[RunRef]]:
    """Two teams with budgets and a run each, on a lane with limits and on one without."""
    d = Deployment(emptied(redis))
    d.advance(LATER_MS)
    d.elect("scheduler-1")
    d.lane(FAST, requests_per_minute=1200, tokens_per_minute=60_000)
    d.lane(SLOW, requests_per_minute=None)
    refs = []
    for team, run, judges in (("search", "r1", 0), ("ads", "r2", 1)):
        spec = make_spec(team, run, 24, judges, d.now_ms)
        spec = spec.model_copy(
            update={"bounds": Bounds(max_concurrent=6 if judges else None, budget_tokens=9000)}
        )
        refs.append(d.upload(spec))
        d.runs.admit(Plan(spec=spec, eval_lanes=(SLOW,) * judges), d.epoch, d.redis_ms)
        Budgets(redis, d.keys).set(team, "day", {"tokens": 5000, "requests": 60})
        Budgets(redis, d.keys).set(team, "month", {"usd": 5.0}, FAST)
        redis.hset(d.keys.state(refs[-1]), "price:0", "2 8")
        for lane, tokens in ((FAST, Estimate(20, 30)), (SLOW, Estimate(40, 100, 60, guessed=True))):
            d.feed(refs[-1], 12, lane, tokens)
    return d, refs


def groups(calls: Iterable[Call]) -> list[list[Call]]:
    """As a worker sends them: calls of a verb that share their keys in one script, others alone."""
    shared: dict[tuple[str, Placed, int], list[Call]] = {}
    for place, call in enumerate(calls):
        shared.setdefault((call.script.name, call.keys, 0 if call.script.many else place), []).append(call)
    return list(shared.values())


def played(redis: Redis, history: Sequence[Any], send: Send) -> tuple[list[Any], Any]:
    """What its calls reply and what they leave in Redis."""
    d, refs = begun(redis)
    flying, replies = list[Attempt](), list[Any]()
    for wait_ms, count, chosen in history:
        d.advance(wait_ms)
        d.bid()
        d.promote()
        granted = list[Attempt]()
        for lane in LANES:
            offers = [Offer(ref, count) for ref in refs]
            grant = d.lanes.grant(lane, d.epoch, offers, room=PLENTY, max_in_flight=PLENTY, lease_ms=LEASE_MS)
            assert grant is not None
            granted += attempts_of(grant, offers, lane)
        flying += granted
        claims = [d.attempts.claim(attempt, "w1", LEASE_MS) for attempt in granted]
        reports = [act(d, flying.pop(which % len(flying))) for which, act in chosen if flying]
        for some in (*groups(claims), *groups(reports)):
            replies.append(send(redis, some))
        replies.append([attempt.id for attempt in granted])
    for lane in LANES:
        for key in (d.keys.lane(lane), d.keys.limits(lane)):
            assert {name.decode() for name, value in redis.hgetall(key).items() if is_text(value)} <= TEXTS
    contents = read_contents(redis)
    del contents[d.keys.audit]  # dated by the server's clock
    return replies, contents


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(steps)
def test_any_history_is_the_same_if_its_calls_share_scripts(real_redis: Redis, history: list[Any]) -> None:
    expected, contents = played(real_redis, history, alone)
    found, merged_contents = played(real_redis, history, together)
    assert near(found, expected)
    for key in contents.keys() | merged_contents.keys():
        assert near(merged_contents.get(key), contents.get(key)), key
