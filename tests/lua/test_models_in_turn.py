"""A lane whose server holds few models: permits keep to those, and no job of another waits for ever."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.job import Attempt
from fairlane.model.run import RunRef
from fairlane.store.write.permits import Grant, Offer
from tests.support.deployment import Deployment, attempts_of, entry

LANE, LINGER_MS, TURN_MS = "gpu", 500, 60_000
MODELS = ("qwen", "gemma", "phi")


class Gpu:
    """A run on a lane for three models: each job is named with one of them."""

    def __init__(self, redis: Redis, models: int = 1, **limits: float) -> None:
        self.d = Deployment(redis)
        self.d.lane(LANE, requests_per_minute=0, models_at_once=models, **limits)
        self.flying: list[Attempt] = []
        self.models: dict[tuple[RunRef, int], str] = {}
        self.refs: list[RunRef] = []
        self.made = 0

    def run(self, *models: str, team: str = "search") -> RunRef:
        self.made += 1
        d, ref = self.d, self.d.submit(team=team, run=f"r{self.made}", rows=len(models))
        for kind, model in enumerate(MODELS):
            d.redis.hset(d.keys.state(ref), f"model:{kind}", model)
        entries = [str(entry(job, 10, MODELS.index(model))) for job, model in enumerate(models)]
        d.redis.rpush(d.keys.fresh(ref, LANE), *entries)
        self.models |= {(ref, job): model for job, model in enumerate(models)}
        self.refs.append(ref)
        return ref

    def ask(self, *refs: RunRef, most: int = 1) -> Grant:
        offers = [Offer(ref, most) for ref in refs or self.refs]
        grant = self.d.ask(offers, LANE)
        for attempt in attempts_of(grant, offers, LANE):
            assert self.d.claim(attempt) is not None
            self.flying.append(attempt)
        return grant

    def end(self, place: int = 0) -> None:
        assert self.d.finish(self.flying.pop(place)) is not None

    def model_of(self, attempt: Attempt) -> str:
        return self.models[RunRef(attempt.team, attempt.run), attempt.job]

    @property
    def called(self) -> list[str]:
        return [self.model_of(attempt) for attempt in self.flying]

    def counts(self) -> dict[str, int]:
        state = self.d.lane_state(LANE)
        return {name[6:]: int(count) for name, count in state.items() if name.startswith("calls:")}


def test_a_job_behind_others_starts_where_only_its_model_is_held(real_redis: Redis) -> None:
    gpu = Gpu(real_redis)
    ref = gpu.run("qwen", "gemma", "gemma", "qwen", "gemma", "qwen")
    grant = gpu.ask(most=10)
    assert [permit.job for permit in grant.permits] == [0, 3, 5]
    assert [int(text.split(":")[0]) for text in gpu.d.list(gpu.d.keys.fresh(ref, LANE))] == [1, 2, 4]
    assert [(each.bound, each.until_ms) for each in grant.delayed] == [("model", grant.now_ms + TURN_MS)]


def test_another_model_starts_once_no_call_of_the_held_one_is_in_flight_or_follows(real_redis: Redis) -> None:
    gpu = Gpu(real_redis)
    gpu.run("qwen", "gemma")
    gpu.ask(most=5)
    gpu.end()
    assert LANE in gpu.d.dirty(), "who waits for a model is asked again with each call that ends"
    grant = gpu.ask()
    assert [each.until_ms - grant.now_ms for each in grant.delayed] == [LINGER_MS]
    gpu.d.advance(LINGER_MS)
    assert len(gpu.ask().permits) == 1
    assert gpu.called == ["gemma"]


def test_a_turn_ends_although_the_held_model_has_jobs(real_redis: Redis) -> None:
    gpu = Gpu(real_redis, model_seconds=5)
    large, small = gpu.run(*["qwen"] * 10), gpu.run("gemma", team="other")
    gpu.ask(large)
    assert [each.until_ms - gpu.d.now_ms for each in gpu.ask(small).delayed] == [5000]
    gpu.d.advance(5000)
    assert [each.bound for each in gpu.ask(large, small).delayed] == ["model", "model"]
    gpu.end()
    assert len(gpu.ask(large, small).permits) == 1
    assert gpu.called == ["gemma"]


def test_a_model_continues_if_no_other_model_waits(real_redis: Redis) -> None:
    gpu = Gpu(real_redis, model_seconds=5)
    large, gone = gpu.run(*["qwen"] * 10), gpu.run("gemma")
    gpu.ask(large, gone)
    gpu.d.cancel(gone)
    gpu.end()
    gpu.d.advance(5000)
    assert gpu.ask(large).delayed
    gpu.d.advance(LINGER_MS)
    assert len(gpu.ask(large).permits) == 1


def test_a_cancelled_run_leaves_no_call_of_its_model(real_redis: Redis) -> None:
    gpu = Gpu(real_redis)
    ref = gpu.run(*["qwen"] * 5)
    gpu.ask(most=3)
    assert gpu.counts() == {"qwen": 3}
    gpu.d.cancel(ref)
    assert gpu.counts() == {}


def test_waiting_for_the_rate_does_not_end_a_models_turn(real_redis: Redis) -> None:
    gpu = Gpu(real_redis, min_gap_ms=10_000)
    first, second = gpu.run(*["qwen"] * 4), gpu.run(*["gemma"] * 4, team="other")
    for _ in range(3):
        assert gpu.ask(second, first).permits
        gpu.end()
        assert gpu.ask(second, first).reason == "gap"
        gpu.d.advance(10_000)
    assert {model["name"] for model in json.loads(gpu.d.lane_state(LANE)["models"])} == {"gemma"}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.lists(st.sampled_from(MODELS), min_size=1, max_size=8)),
        st.tuples(st.just("ask"), st.tuples(st.permutations(range(5)), st.integers(1, 4))),
        st.tuples(st.just("end"), st.integers(0, 20)),
        st.tuples(st.just("wait"), st.sampled_from([1, 300, 600, 4000])),
        st.tuples(st.just("cancel"), st.integers(0, 4)),
    ),
    max_size=40,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, held=st.integers(1, 3), places=st.integers(1, 6))
def test_no_more_models_than_are_held_are_called_and_every_job_starts(
    real_redis: Redis, steps: list[tuple[str, Any]], held: int, places: int
) -> None:
    real_redis.flushall()
    gpu = Gpu(real_redis, held, model_seconds=3, max_concurrency=places)
    for what, value in steps:
        match what:
            case "run" if len(gpu.refs) < 5:
                gpu.run(*value, team=("one", "two")[len(value) % 2])
            case "ask" if gpu.refs:
                refs = [gpu.refs[place] for place in value[0] if place < len(gpu.refs)]
                gpu.ask(*refs, most=value[1])
            case "end" if gpu.flying:
                gpu.end(value % len(gpu.flying))
            case "wait":
                gpu.d.advance(value)
            case "cancel" if value < len(gpu.refs):
                ref = gpu.refs.pop(value)
                gpu.d.cancel(ref)
                gpu.flying = [each for each in gpu.flying if (each.team, each.run) != (ref.team, ref.run)]
        called = gpu.called
        assert len(set(called)) <= held
        assert gpu.counts() == {model: called.count(model) for model in set(called)}
    drained = 0
    while gpu.refs and any(gpu.d.redis.llen(gpu.d.keys.fresh(ref, LANE)) for ref in gpu.refs):
        gpu.ask(most=3)
        while gpu.flying:
            gpu.end()
        gpu.d.advance(LINGER_MS)
        drained += 1
        assert drained < 200
    while gpu.flying:
        gpu.end()
    assert gpu.counts() == {}
