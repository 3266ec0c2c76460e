"""Any key is deleted, cut short or retyped at any moment: each run ends, or the doctor names the key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from redis import Redis
from redis.exceptions import ResponseError

from fairlane.datasets.sessions import Numbering
from fairlane.lab.rehearsal.virtual.simulated_workers import JUDGE_TOKENS, ref_of
from fairlane.model.choices import TURN_FIELDS_VERSION
from fairlane.model.evaluators import Judge
from fairlane.model.job import Attempt
from fairlane.model.outcome import Outcome, PermanentFailure, ServerError, Success
from fairlane.model.run import RunRef
from fairlane.model.sessions import SessionMembership, decode_memberships, memberships_field, session_of_job
from fairlane.model.tokens import Usage
from fairlane.pipeline.completion import complete_without_row
from fairlane.pipeline.evaluations import FinishedJob
from fairlane.store.connection.server_states import RETYPED, refusing_state
from fairlane.store.read.lost_parts import incomplete_runs
from fairlane.store.read.mistyped import mistyped
from tests.support.redis import emptied
from tests.support.scheduling import Cluster, assert_complete
from tests.support.stand_ins import FakeWorker

ROWS = [{"q": n, "s": n % 3, "first": n % 2 > 0} for n in range(9)]
WHOLE = Judge(name="whole", model="sim:judge", level="session", template="?", choices={"yes": 1.0})
ALONE = Judge(name="alone", model="sim:slow", template="{{ output }}", choices={"yes": 1.0})
RUNS: dict[str, dict[str, Any]] = {
    "plain": {},
    "judged": {"judges": ["sim:judge", "sim:fast"]},
    "serial": {"order": {"serial": True}, "judges": ["sim:judge"]},
    "some first": {"order": {"serial_field": "first"}},
    "conversations": {
        "order": {"conversation": True, "conversation_field": "s", "turns": True},
        "version": TURN_FIELDS_VERSION,
    },
    "budget": {"bounds": {"budget_tokens": 10_000}},
    "few at once": {"bounds": {"max_concurrent": 2}},
    "sessions": {"session_field": "s", "sessions": 3, "evaluators": (WHOLE, ALONE)},
}
FIELDS_KEPT = ("state", "leader", "limits", "clock")
"""Hashes whose single fields nobody evicts; of a run's state the doctor names what is missing."""


def answer(attempt: Attempt) -> tuple[float, Outcome]:
    """Some are slow, some fail at first, some for good."""
    seconds = (0.3, 0.7, 2.0)[attempt.job % 3]
    if attempt.job % 7 == 3:
        return seconds, PermanentFailure("no", 400, content=True)
    if attempt.job % 5 == 1 and attempt.number == 1:
        return seconds, ServerError("busy", 500)
    return seconds, Success("yes", Usage(10, 5))


class Sessions:
    """Lets simulated workers report the ends of items to their sessions."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._simulated = cluster, cluster.simulated
        self._plan_of, self._memberships = self._simulated._plan, list[SessionMembership]()
        cluster.simulated.__dict__.update(_plan=self._plan, _finish=self._finish)

    def submit(self, **spec: Any) -> RunRef:
        numbering, cluster = Numbering("s"), self._cluster
        list(numbering.watch([[dict(row) for row in ROWS]]))
        ref = cluster.submit(ROWS, **spec)
        cluster.outbox.note(ref, numbering.fields(500))
        encoded = dict(numbering.fields(500))[memberships_field(0)]
        self._memberships = decode_memberships(encoded, 3)
        return ref

    def _plan(self, ref: RunRef) -> Any:
        plan = self._plan_of(ref)
        return plan.model_copy(update={"session_lanes": ("sim:judge",) * len(plan.spec.session_evals)})

    def _finish(self, worker: FakeWorker, attempt: Attempt, outcome: Outcome, decision: Any) -> Any:
        plan = self._plan(ref_of(attempt))
        answered = outcome if decision.error is None and isinstance(outcome, Success) else None
        of_item = session_of_job(plan.spec, attempt.job) is None
        membership = self._memberships[attempt.job // plan.spec.steps] if of_item else None
        finished = FinishedJob(answered, decision.error, decision.attempts)
        done = complete_without_row(plan, attempt.job, finished, JUDGE_TOKENS, membership)
        return self._simulated._attempts.finish(
            attempt, worker.name, decision.feedback, done, self._cluster.now_ms
        )


def damage(redis: Redis, key: bytes, how: str, pick: int) -> None:
    kind = redis.type(key).decode()
    if how == "retype":
        redis.delete(key)
        redis.rpush(key, "x") if kind == "string" else redis.set(key, "x")
    elif how == "delete" or kind == "stream" or (kind == "hash" and key.decode().endswith(FIELDS_KEPT)):
        redis.delete(key)
    elif kind == "list":
        redis.ltrim(key, 1 + pick % 2, -1 - pick % 3)
    elif kind == "string":
        value = redis.get(key)
        redis.set(key, value[: len(value) // 2])
    else:
        some = {"hash": redis.hkeys, "set": redis.smembers, "zset": lambda key: redis.zrange(key, 0, -1)}[
            kind
        ](key)
        one = sorted(some)[pick % len(some)]
        {"hash": redis.hdel, "set": redis.srem, "zset": redis.zrem}[kind](key, one)


def go_on(cluster: Cluster, key: bytes, seconds: float) -> None:
    """Let time pass; a key of another type is named where it is met, and deleted then."""
    scheduler, met = cluster.processes[0].scheduler, False
    try:
        cluster.run_for(seconds)
    except ResponseError as error:
        if refusing_state(error) is not RETYPED:
            raise
        met = True
    if met or scheduler._backlog.damaged:
        assert [each.key for each in mistyped(cluster.redis, cluster.keys)] == [key.decode()]
        cluster.redis.delete(key)
    for lane in cluster.lanes.names():
        if key.decode() == cluster.keys.limits(lane) and cluster.redis.type(key) == b"hash":
            cluster.lanes.resume(lane)  # the leader has paused it, since its limits were of another type
    if met:
        scheduler.store_came_back()
        for worker in cluster.workers:
            worker.calls.clear()  # what it was about to claim or to report, its lease will lapse


@pytest.mark.parametrize("kind", RUNS)
@example(at_s=2.5, which=16494, how="retype", pick=21, new_leader=True)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=6,
    deadline=None,
    phases=set(Phase) - {Phase.explain, Phase.shrink},
)
@given(
    at_s=st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.5, 2.5]),
    which=st.integers(0, 10**6),
    how=st.sampled_from(["delete", "cut", "retype"]),
    pick=st.integers(0, 100),
    new_leader=st.booleans(),
)
def test_each_run_ends_or_is_named(
    real_redis: Redis, kind: str, at_s: float, which: int, how: str, pick: int, new_leader: bool
) -> None:
    redis = emptied(real_redis)
    cluster = Cluster(redis, provider=answer, workers=[FakeWorker("w1", 4), FakeWorker("w2", 3)])
    keys, spec = cluster.keys, RUNS[kind]
    ref = Sessions(cluster).submit(**spec) if kind == "sessions" else cluster.submit(ROWS, **spec)
    cluster.run_for(0.1 + at_s)
    every = sorted(redis.keys("*"))
    key = every[which % len(every)]
    damage(redis, key, how, pick)
    if new_leader:
        cluster.processes[0].scheduler.store_came_back()
    for _ in range(15):
        go_on(cluster, key, 12)
        if key.decode() == keys.state(ref) and redis.type(key) == b"string":
            # The run had ended, so nobody has met its state.
            assert [each.key for each in mistyped(redis, keys)] == [key.decode()]
            return
        if redis.hget(keys.state(ref), "state") == b"completed" and not redis.hlen(keys.leased):
            break
    state: Mapping[bytes, bytes] = redis.hgetall(keys.state(ref))
    if state.get(b"state") in (None, b"running"):
        gone = not state and not redis.sismember(keys.active, str(ref))
        assert gone or incomplete_runs(redis, keys), (key, state)
        return
    assert state[b"jobs_done"] == state[b"jobs"], (key, state)
    assert state[b"items_done"] == state[b"items"], (key, state)
    assert int(redis.hget(keys.lane("sim:fast"), "inflight") or 0) == 0, key
    if not key.endswith(b":jobs"):  # else the numbers of a job's attempts begin anew
        numbers = Counter((start.attempt.job, start.attempt.number) for start in cluster.started(ref=ref))
        assert max(numbers.values()) == 1, "an attempt was executed twice"


@pytest.mark.parametrize("at_s", [0.1, 0.6, 1.0, 2.6])
@pytest.mark.parametrize("how", ["delete", "cut"])
def test_no_turn_is_called_again_where_what_was_fed_is_lost(real_redis: Redis, how: str, at_s: float) -> None:
    """The next leader fed again what was queued or in flight, and the run did not end."""
    cluster = Cluster(real_redis, provider=answer, workers=[FakeWorker("w1", 4), FakeWorker("w2", 3)])
    ref = cluster.submit(ROWS, **RUNS["conversations"])
    cluster.run_for(at_s)
    damage(real_redis, cluster.keys.fed(ref).encode(), how, 0)
    cluster.processes[0].scheduler.store_came_back()
    cluster.run_until_finished(ref)
    assert_complete(cluster, ref)
