"""Servers that hold few models at once: how they are configured, and what is said of what waits for them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from redis import Redis

from fairlane.cli.lanes.lane_views import limits_in_words
from fairlane.config.connections.connection import Connection
from fairlane.config.settings import Settings
from fairlane.model.evaluators import Judge
from fairlane.model.lane import LaneLimits
from fairlane.model.run import Plan
from fairlane.store.write.permits import Offer
from fairlane.store.write.workers import WorkerInfo
from fairlane.why.targets import Explainer
from tests.support.deployment import Deployment, make_spec

LANE = "sim:fast"


def connection(**fields: Any) -> Connection:
    return Connection.model_validate({"base_url": "http://gpu:8080/v1", "protocol": "openai", **fields})


def test_models_that_take_turns_share_one_lane_whatever_the_protocol() -> None:
    assert connection().scope == "model"
    in_turn = connection(models_at_once=1)
    assert in_turn.scope == "connection"
    assert "model" not in in_turn.lane_parts
    assert in_turn.lane_defaults("qwen") == {"models_at_once": 1}
    assert connection(models_at_once=1, lane_scope="endpoint").scope == "endpoint"


def test_a_lane_for_each_model_is_refused_where_models_take_turns() -> None:
    with pytest.raises(ValidationError, match=r"models_at_once\n.*needs one lane for all models"):
        connection(models_at_once=1, lane_scope="model")


def test_a_lanes_own_number_comes_before_its_connections() -> None:
    table = {"protocol": "ollama", "base_url": "http://gpu:11434", "models_at_once": 1}
    settings = Settings.model_validate(
        {"connections": {"gpu": table}, "lanes": {"gpu": {"models_at_once": 2, "model_seconds": 30}}}
    )
    assert settings.lane_of("gpu:qwen") == "gpu"
    limits = settings.limits_of("gpu")
    assert limits is not None
    assert (limits.models_at_once, limits.model_seconds) == (2, 30)
    assert "2 models at once, 30 s each" in limits_in_words(limits)
    assert "1 model at once" in limits_in_words(LaneLimits(models_at_once=1))


def test_a_run_has_the_model_of_each_call_kind(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    judge = Judge(name="j", model="gpu:gemma:27b", template="{{ output }}", choices={"yes": 1.0})
    spec = make_spec("search", "r1", 3, 0, 0).model_copy(
        update={"models": ("gpu:qwen", "gpu:phi"), "evaluators": (judge,)}
    )
    ref = d.upload(spec)
    d.runs.admit(Plan(spec=spec, eval_lanes=("gpu",)), d.epoch, d.now_ms)
    named = {name: text for name, text in d.state(ref).items() if name.startswith("model:")}
    assert named == {"model:0": "qwen", "model:1": "phi", "model:2": "gemma:27b"}


def test_what_waits_for_its_model_names_it_and_the_one_that_is_held(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    d.lane(LANE, models_at_once=1, model_seconds=60)
    info = WorkerInfo("w1", 100, (LANE,), "1", 1, "box", 0)
    d.workers.beat("w1", info, [], 1000, changed=True, now_ms=d.now_ms).run(d.redis)
    refs = [d.submit(run=name, rows=2) for name in ("r1", "r2")]
    for ref, model in zip(refs, ("qwen", "gemma"), strict=True):
        d.redis.hset(d.keys.state(ref), "model:0", model)
        d.feed(ref, 2, LANE)
    for ref in refs:
        d.ask([Offer(ref, 1)], LANE)
    d.advance(18_000)
    explainer = Explainer(d.redis, d.keys, "search", {}, d.now_ms)
    (part,) = explainer.why("r2").lanes
    assert part.constraint == "model"
    assert part.sentence.startswith(f"the next job waits for gemma: {LANE} calls qwen (1 in flight)")
    assert "in 42 s at the latest" in part.sentence
    assert part.eta is not None
    assert part.eta.at_least
    lane = explainer.why(LANE)
    assert (lane.constraint, lane.until_ms) == ("model", d.now_ms + 42_000)
    d.advance(60_000)
    ended = Explainer(d.redis, d.keys, "search", {}, d.now_ms).why(LANE)
    assert "changes models once the calls of qwen (1 in flight) have ended" in ended.sentence
