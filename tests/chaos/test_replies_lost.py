"""Whichever reply of Redis is lost after Redis has acted: nothing gets stuck, and no call is made twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from fairlane import JobState, RetryPolicy
from fairlane.embedded.server import EmbeddedRedis
from fairlane.evaluators.builders import llm_judge
from fairlane.store.verbs import script
from fairlane.testing import SimulatedModel
from tests.support.cluster import Cluster, cluster, numbered, whole
from tests.support.lossy_proxy import LossyProxy, lossy_proxy
from tests.support.wait import wait_until

pytestmark = pytest.mark.chaos

JOBS = 20
ONCE_MORE = RetryPolicy(max_attempts=10, initial_delay=0.1, max_delay=0.2)
SCHEDULER_S = ("run_admit", "run_feed", "permit_grant", "job_promote", "leader_acquire")
WORKER_S = ("attempt_claim", "attempt_finish", "attempt_defer", "worker_beat")
COMMANDS = ("SPOP", "LPUSH", "BRPOP", "SMEMBERS", "HGETALL", "inbox")
MANY = 3


@dataclass(frozen=True, slots=True)
class Lossy:
    """A deployment whose every connection to Redis goes through a proxy."""

    deployment: Cluster
    proxy: LossyProxy


@pytest.fixture(scope="module")
def lossy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lossy]:
    directory = tmp_path_factory.mktemp("lossy")
    models = {
        "task": SimulatedModel(latency_ms=50, faults={"error_500": 0.2}),
        "judge": SimulatedModel(latency_ms=20, output="fixed", fixed_text="yes"),
    }
    with (
        EmbeddedRedis(directory / "server") as server,
        lossy_proxy(server.url) as proxy,
        cluster(directory, models, redis_url=proxy.url, slots=10) as deployment,
    ):
        yield Lossy(deployment, proxy)


def run_through(lossy: Lossy) -> None:
    """A run with retries and judges, from its submission to its end: each call made once."""
    deployment = lossy.deployment
    deployment.provider.reset()
    run = deployment.client.submit(
        numbered(JOBS),
        "question {{ n }}",
        model="sim:task",
        evaluators=[llm_judge("sim:judge", "{{ n }} {{ output }}", {"yes": 1})],
        retry=ONCE_MORE,
    )
    records = whole(run, timeout=60.0)
    assert {(record.state, record.scores["llm_judge"]) for record in records} == {(JobState.SUCCEEDED, 1.0)}
    assert [deployment.served(model).duplicates for model in ("task", "judge")] == [0, 0]
    assert not deployment.stack.poll()


def digests(verb: str) -> list[bytes]:
    """What FCALL and EVALSHA name a verb by: one call of it, and several that a worker merges."""
    single = script(verb)
    forms = [each for each in (single, single.many) if each is not None]
    functions = [each.function.name for each in forms if each.function is not None]
    return [name.encode() for name in (*functions, *(each.sha for each in forms))]


@pytest.mark.parametrize("verb", [*SCHEDULER_S, *WORKER_S])
def test_a_run_completes_whichever_script_s_reply_is_lost(lossy: Lossy, verb: str) -> None:
    lossy.proxy.lose(*digests(verb))
    run_through(lossy)
    wait_until(lambda: lossy.proxy.left == 0)


@pytest.mark.parametrize("verb", WORKER_S)
def test_a_run_completes_however_often_a_worker_s_reply_is_lost(lossy: Lossy, verb: str) -> None:
    lossy.proxy.lose(*digests(verb), times=MANY)
    run_through(lossy)
    lossy.proxy.lose_nothing()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_run_completes_whichever_command_s_reply_is_lost(lossy: Lossy, command: str) -> None:
    lossy.proxy.lose(command.encode())
    run_through(lossy)
    wait_until(lambda: lossy.proxy.left == 0)


def test_a_run_completes_when_every_connection_falls_silent(lossy: Lossy) -> None:
    run = lossy.deployment.client.submit(
        numbered(JOBS), "question {{ n }}", model="sim:task", retry=RetryPolicy(max_attempts=5)
    )
    wait_until(lambda: run.status().items_done > 0)
    lossy.proxy.fall_silent()

    records = whole(run, timeout=60.0)
    assert {record.state for record in records} == {JobState.SUCCEEDED}
    assert not lossy.deployment.stack.poll()
