"""A verb that meets a key of another type has changed nothing: the error comes before its first write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from fairlane.model.decision import Defer
from fairlane.model.ending import Completion, ReadyJob, SessionCompletion
from fairlane.model.job import Attempt, Feedback, JobState
from fairlane.model.run import Bounds, Plan, RunRef
from fairlane.model.tokens import Usage
from fairlane.store.script import Call, Script, merged
from fairlane.store.write.budgets import Budgets
from fairlane.store.write.permits import ReservedShare
from fairlane.store.write.runs.lost_jobs import LostJobs
from fairlane.store.write.runs.uncalled_jobs import UncalledJobs
from tests.support.contents import read_contents
from tests.support.deployment import FOREVER_MS, LEASE_MS, SPENT, Deployment, entry, make_spec
from tests.support.redis import emptied

FAST, JUDGE = "sim:fast", "sim:judge"
REF = RunRef("search", "r1")
DONE = Completion(
    JobState.SUCCEEDED,
    SPENT,
    (ReadyJob(entry(1, 5), JUDGE),),
    memory={"m": "1"},
    session=SessionCompletion(0, 0, 1, True, ((entry(40, 5), JUDGE),)),
)
Act = Callable[[], object]


def played(redis: Redis) -> Deployment:
    """A run with budgets, bounds and shares on a limited lane that waits for slots; two calls are claimed."""
    emptied(redis)
    d = Deployment(redis)
    d.lane(FAST, requests_per_minute=6000, tokens_per_minute=1_000_000, max_concurrency=5)
    Budgets(redis, d.keys).set("search", "day", {"tokens": 10**6})
    spec = make_spec("search", "r1", 10, 1, d.now_ms)
    spec = spec.model_copy(update={"bounds": Bounds(max_concurrent=4, budget_tokens=10**6)})
    d.upload(spec)
    d.runs.admit(Plan(spec=spec, eval_lanes=(JUDGE,)), d.epoch, d.redis_ms)
    d.feed(REF, 6)
    redis.sadd(d.keys.starved, FAST)
    return d


def started(d: Deployment) -> Attempt:
    shares = {"search": ReservedShare(0.5, 0.9), "ads": ReservedShare(0.1)}
    d.ask(REF, count=2, shares=shares)
    attempt = Attempt("r1", "search", 0, 1, FAST)
    assert d.claim(attempt)
    return attempt


def finishing(d: Deployment) -> Act:
    attempt = started(d)
    told = Feedback("ok", Usage(10, 900))
    return lambda: d.attempts.finish(attempt, "w1", told, DONE, d.redis_ms).run(d.redis)


def late(d: Deployment) -> Act:
    started(d)
    attempt = Attempt("r1", "search", 2, 1, FAST)
    assert d.claim(attempt)
    d.redis.hset(d.keys.lane(FAST), mapping={"usual_ms": 10, "seen_ok": 1})
    told = Feedback("none", Usage(), deadline_ms=9000)
    return lambda: d.attempts.finish(attempt, "w1", told, DONE, d.redis_ms).run(d.redis)


def deferring(**more: Any) -> Callable[[Deployment], Act]:
    def made(d: Deployment) -> Act:
        attempt = started(d)
        return lambda: d.defer(attempt, **more)

    return made


def recovering(most: int) -> Callable[[Deployment], Act]:
    def made(d: Deployment) -> Act:
        attempt = started(d)
        d.advance(2 * LEASE_MS)
        return lambda: d.recover(attempt, max_attempts=most)

    return made


def promoting(d: Deployment) -> Act:
    d.defer(started(d), delay_ms=5, cost="attempt")
    d.advance(10)
    [job] = d.runs.delayed(d.now_ms)
    return lambda: d.runs.promote(job, d.redis_ms)


def awaiting(d: Deployment) -> Act:
    attempt = started(d)
    return lambda: d.wait_for(attempt)


def claiming(d: Deployment) -> Act:
    d.ask(REF, count=2)
    return lambda: d.claim(Attempt("r1", "search", 0, 1, FAST))


def granting(d: Deployment) -> Act:
    shares = {"search": ReservedShare(0.5, 0.9), "ads": ReservedShare(0.1)}
    return lambda: d.ask(REF, count=2, shares=shares)


def cancelling(d: Deployment) -> Act:
    started(d)
    return lambda: d.cancel(REF)


def failing(d: Deployment) -> Act:
    d.defer(started(d), signal="server_error", reason="broken", cost="unproven", delay_ms=1000)
    [job] = d.runs.delayed(FOREVER_MS * 100)
    jobs = UncalledJobs(d.redis, d.keys)
    return lambda: jobs.fail_delayed(job, "unanswered", DONE, d.epoch, d.redis_ms)


def losing(d: Deployment) -> Act:
    return lambda: LostJobs(d.redis, d.keys).fail(REF, 0, FAST, DONE, d.epoch, d.redis_ms)


def together(d: Deployment) -> Act:
    """Two reports of failures share a script."""
    attempts = [started(d), Attempt("r1", "search", 2, 1, FAST)]
    assert d.claim(attempts[1])
    told = Defer(Feedback("server_error", Usage(10, 900)), delay_ms=5)
    call = merged([d.attempts.defer(each, "w1", told, now_ms=d.redis_ms) for each in attempts])

    def act() -> None:
        for reply in call.replies(call.run(d.redis)):
            if isinstance(reply, ResponseError):
                raise reply

    return act


ACTS: dict[str, Callable[[Deployment], Act]] = {
    "claim": claiming,
    "await": awaiting,
    "grant": granting,
    "finish": finishing,
    "finish late": late,
    "fail": failing,
    "lose": losing,
    "together": together,
    "defer": deferring(signal="server_error", cost="unproven", used=900),
    "defer later": deferring(signal="limited", delay_ms=500, rate_limited=True, retry_after_ms=50),
    "control": deferring(signal="ok", cost="control", used=5),
    "recover": recovering(9),
    "recover and fail": recovering(1),
    "promote": promoting,
    "cancel": cancelling,
}


def retype(redis: Redis, key: bytes) -> None:
    """Give a key another type."""
    kind = redis.type(key)
    redis.delete(key)
    redis.set(key, "x") if kind != b"string" else redis.rpush(key, "x")


@pytest.mark.parametrize("name", ACTS)
def test_an_error_leaves_everything_as_it_was(
    real_redis: Redis, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    calls, bind = list[Call](), Script.bind

    def noted(self: Script, *args: Any) -> Call:
        calls.append(bind(self, *args))
        return calls[-1]

    monkeypatch.setattr(Script, "bind", noted)
    ACTS[name](played(real_redis))()
    torn, failed = set[str](), 0
    for key in dict.fromkeys(calls[-1].keys):
        act = ACTS[name](played(real_redis))
        retype(real_redis, key)
        before = read_contents(real_redis)
        try:
            act()
        except ResponseError:
            failed += 1
            if read_contents(real_redis) != before:
                torn.add(key.decode())
    assert failed
    assert not torn
