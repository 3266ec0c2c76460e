"""When runs are over, however they ended, no key remains that nobody deletes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from redis import Redis

from fairlane import RetryPolicy, Run, RunState
from fairlane.evaluators.builders import llm_judge
from fairlane.model.run import RunRef
from fairlane.store.write.runs.inbox import Outbox
from fairlane.testing import SimulatedModel
from tests.support.cluster import Cluster, cluster, numbered
from tests.support.redis import leaked_keys
from tests.support.wait import wait_until

# Which queues exist, as kombu notes it: as many as there are lanes and workers, however many runs there are.
BROKER = re.compile(r"_kombu\.binding[._].*")

MODELS = {
    "fine": SimulatedModel(latency_ms=10, output="fixed", fixed_text="yes"),
    "refusing": SimulatedModel(status_always=400),
    "hanging": SimulatedModel(latency_ms=60_000),
    "failing": SimulatedModel(status_always=500),
}
JUDGE = llm_judge("sim:fine", "{{ output }}", {"yes": 1})


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("small"), MODELS, workers=1) as made:
        yield made


def runs_of_every_ending(deployment: Cluster) -> list[Run]:
    submit = deployment.client.submit
    again = RetryPolicy(max_attempts=5, initial_delay=60.0)
    cancelled = [
        submit(numbered(5), "hang {{ n }}", model="sim:hanging"),
        submit(numbered(5), "fail {{ n }}", model="sim:failing", retry=again),
        submit(numbered(2000), "much {{ n }}", model="sim:fine", evaluators=[JUDGE]),
    ]
    wait_until(lambda: deployment.served("hanging").in_flight == 5)
    wait_until(lambda: cancelled[1].status().retries and cancelled[2].status().jobs_done)
    for run in cancelled:
        run.cancel()
    ref = RunRef("search", "refused")
    deployment.redis.set(deployment.keys.spec(ref), "{}", ex=3600)
    Outbox(deployment.redis, deployment.keys).cancel(RunRef("search", "unknown"))
    deployment.redis.rpush(deployment.keys.inbox("search"), '{"op": "submit", "run": "refused"}')
    wait_until(lambda: deployment.redis.exists(deployment.keys.state(ref)))
    return [
        *cancelled,
        submit([], "nothing", model="sim:fine", check=False),
        submit(numbered(20), "judged {{ n }}", model="sim:fine", evaluators=[JUDGE]),
        submit(numbered(20), "refused {{ n }}", model="sim:refusing", evaluators=[JUDGE]),
        submit(numbered(20), "{{ missing }}", model="sim:fine", evaluators=[JUDGE], check=False),
        deployment.client.run("refused"),
    ]


def unowned(redis: Redis) -> list[str]:
    """Keys without a time to live that are neither the deployment's own nor the broker's list of queues."""
    return [key for key in leaked_keys(redis) if not BROKER.fullmatch(key)]


def test_every_key_of_runs_that_are_over_expires(small: Cluster) -> None:
    runs = runs_of_every_ending(small)
    assert {run.wait(timeout=30.0).state for run in runs} == {
        RunState.COMPLETED,
        RunState.CANCELLED,
        RunState.REFUSED,
    }
    keys = small.keys
    wait_until(lambda: not small.redis.zcard(keys.leases))
    # What waits out a back-off of a minute belongs to a run that is over: it goes when it is due.
    for member, _ in small.redis.zrange(keys.delayed, 0, -1, withscores=True):
        small.redis.zadd(keys.delayed, {member: 1})
    small.redis.publish(keys.wake, "")
    wait_until(lambda: unowned(small.redis) == [])
    assert all(small.redis.ttl(keys.state(RunRef("search", run.id))) > 0 for run in runs)
