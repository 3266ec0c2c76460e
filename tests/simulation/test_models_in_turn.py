"""A server that holds few models at once, in virtual time: calls keep to those, others wait for a while."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.lab.rehearsal.virtual.simulated_workers import ref_of
from fairlane.model.job import Attempt
from fairlane.model.outcome import Outcome, Success
from fairlane.model.run import cell_of
from fairlane.model.tokens import Usage
from tests.support.scheduling import Cluster, assert_complete
from tests.support.stand_ins import FakeWorker

CONNECTION: dict[str, Any] = {"protocol": "ollama", "base_url": "http://gpu.invalid", "models_at_once": 1}
PLACES, LOAD_S = 4, 10.0


class Server:
    """It holds the latest ``held`` models, and answers in order: ``places`` calls of a second at a time.

    It loads another once all calls before it have ended, as Ollama does.
    """

    def __init__(self, held: int, places: int, load_s: float) -> None:
        self._models: list[str] = []
        self._most, self._load_s = held, load_s
        self._free = [0.0] * places
        self.loads = 0

    def call(self, model: str, now_s: float) -> float:
        """How many seconds the answer takes."""
        if model in self._models:
            self._models.remove(model)
        else:
            self._models = self._models[max(0, 1 + len(self._models) - self._most) :]
            self._free = [max(now_s, *self._free) + self._load_s] * len(self._free)
            self.loads += 1
        self._models.append(model)
        place = min(range(len(self._free)), key=self._free.__getitem__)
        self._free[place] = max(now_s, self._free[place]) + 1.0
        return self._free[place] - now_s


class Gpu:
    """A deployment whose connection ``gpu`` leads to such a server."""

    def __init__(
        self, redis: Redis, held: int = 1, places: int = PLACES, load_s: float = LOAD_S, **limits: float
    ) -> None:
        self.server = Server(held, places, load_s)
        self.cluster = Cluster(
            redis,
            provider=self._answer,
            workers=[FakeWorker("w1", 100), FakeWorker("w2", 100)],
            lanes={"gpu": {"max_concurrency": places, **limits}},
            connections={"gpu": {**CONNECTION, "models_at_once": held}},
        )
        self._began_ms = self.cluster.now_ms

    @property
    def now_s(self) -> float:
        return (self.cluster.now_ms - self._began_ms) / 1000

    def _answer(self, attempt: Attempt) -> tuple[float, Outcome]:
        spec = self.cluster.specs[ref_of(attempt)]
        item, step = divmod(attempt.job, spec.steps)
        model = spec.evals[step - 1].model if step else spec.models[cell_of(spec, item).model]
        return self.server.call(model, self.now_s), Success("yes", Usage(10, 20))

    def submit(self, rows: int, *models: str, judges: int = 0, **spec: Any) -> Any:
        named = [f"gpu:{model}" for model in models]
        return self.cluster.submit(
            rows, models=named, judges=[f"gpu:judge{n}" for n in range(judges)], **spec
        )


def test_two_runs_change_models_as_often_as_turns_end(real_redis: Redis) -> None:
    gpu = Gpu(real_redis)
    runs = gpu.submit(60, "qwen"), gpu.submit(60, "gemma")
    assert gpu.cluster.run_until_finished(*runs) < 60
    assert gpu.server.loads == 2


def test_a_run_with_two_models_finishes_one_before_the_other(real_redis: Redis) -> None:
    gpu = Gpu(real_redis)
    run = gpu.submit(60, "qwen", "gemma")
    assert gpu.cluster.run_until_finished(run) < 60
    assert gpu.server.loads == 2
    assert_complete(gpu.cluster, run)


def test_ready_judges_wait_for_the_tasks(real_redis: Redis) -> None:
    gpu = Gpu(real_redis)
    run = gpu.submit(60, "qwen", judges=1)
    assert gpu.cluster.run_until_finished(run) < 60
    assert gpu.server.loads == 2


def test_a_few_calls_of_another_team_wait_for_a_turn_at_most(real_redis: Redis) -> None:
    gpu = Gpu(real_redis, model_seconds=20)
    large = gpu.submit(600, "qwen", team="large")
    gpu.cluster.run_for(30)
    small = gpu.submit(4, "gemma", team="small")
    waited = gpu.cluster.run_until_finished(small)
    assert 20 < waited < 20 + LOAD_S + 5
    gpu.cluster.run_until_finished(large)
    assert gpu.server.loads == 3


def test_two_models_are_held_and_a_third_waits(real_redis: Redis) -> None:
    gpu = Gpu(real_redis, held=2)
    runs = [gpu.submit(40, model) for model in ("qwen", "gemma", "phi")]
    gpu.cluster.run_until_finished(*runs)
    assert gpu.server.loads == 3


def test_a_cancelled_runs_model_delays_no_other(real_redis: Redis) -> None:
    gpu = Gpu(real_redis, model_seconds=5)
    first, other = gpu.submit(100, "qwen"), gpu.submit(100, "gemma")
    gpu.cluster.run_for(2)
    gpu.cluster.cancel(other)
    gpu.cluster.run_until_finished(first, limit_s=100)
    assert gpu.server.loads == 1


def test_jobs_without_a_known_model_start_as_before(real_redis: Redis) -> None:
    """A scheduler of the version before has admitted their run."""
    gpu = Gpu(real_redis)
    run = gpu.submit(20, "qwen")
    gpu.cluster.run_for(0.2)
    state = gpu.cluster.keys.state(run)
    assert real_redis.hdel(state, "model:0") == 1
    gpu.cluster.run_until_finished(run)
    assert_complete(gpu.cluster, run)


ROUGH = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])


@ROUGH
@given(
    runs=st.lists(
        st.tuples(
            st.integers(1, 30),
            st.lists(st.sampled_from(["qwen", "gemma", "phi"]), min_size=1, max_size=3, unique=True),
            st.integers(0, 2),
            st.sampled_from(["one", "two"]),
            st.integers(0, 1),
        ),
        min_size=1,
        max_size=4,
    ),
    held=st.integers(1, 2),
    places=st.integers(1, 6),
    turn_s=st.sampled_from([1.0, 15.0, 60.0]),
    limits=st.sampled_from([{}, {"min_gap_ms": 900}, {"requests_per_minute": 100}]),
    load_s=st.sampled_from([0.0, 3.0, 20.0]),
)
@pytest.mark.slow(seconds=30)
def test_every_job_ends_and_model_loads_are_few(
    real_redis: Redis,
    runs: list[tuple[int, list[str], int, str, int]],
    held: int,
    places: int,
    turn_s: float,
    limits: dict[str, float],
    load_s: float,
) -> None:
    real_redis.flushall()
    gpu = Gpu(real_redis, held, places, load_s, model_seconds=turn_s, **limits)
    refs = [
        gpu.submit(rows, *models, judges=judges, team=team, priority=priority)
        for rows, models, judges, team, priority in runs
    ]
    gpu.cluster.run_until_finished(*refs, limit_s=20_000)
    for ref in refs:
        assert_complete(gpu.cluster, ref)
    assert gpu.server.loads <= 10 + 2 * held * gpu.now_s / (turn_s + load_s)
    counts = [name for name in real_redis.hkeys(gpu.cluster.keys.lane("gpu")) if b"calls:" in name]
    assert not counts
