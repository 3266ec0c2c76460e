"""Endpoints: one name for each, and a bound for those that nobody has described."""

from __future__ import annotations

import fakeredis
import pytest

from fairlane.config.settings import Settings
from fairlane.model.lane import ENDPOINT_CONCURRENCY, LaneLimits, endpoint_id
from fairlane.store.keys import Keys
from fairlane.store.write.lanes.lane_view import Places
from fairlane.store.write.lanes.lanes import Lanes
from fairlane.store.write.permits import Offer
from fairlane.store.write.scopes import Scopes
from fairlane.why.reasons import used_up_in_words
from fairlane_scheduler.lanes.registry import LaneRegistry
from fairlane_scheduler.lanes.sharing import LaneSharing
from tests.support.deployment import Deployment


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("openai:gpt-4o", "openai:gpt-4o"),
        ("http://api.example.com:8080/v1", "http:api.example.com:8080"),
        ("https://user:secret@API.example.com/v1?x=1", "https:api.example.com"),
        ("https://api.example.com:443/v1", "https:api.example.com"),
        ("https://api.example.com:80/v1", "https:api.example.com:80"),
        ("gpt-4o", "id:gpt-4o"),
    ],
)
def test_a_reference_is_reported_by_its_endpoint(reference: str, name: str) -> None:
    assert endpoint_id(reference) == name


def registry(
    redis: fakeredis.FakeRedis,
    lanes: dict[str, LaneLimits] | None = None,
    defaults: dict[str, object] | None = None,
) -> LaneRegistry:
    connection = {
        "protocol": "openai",
        "base_url": "http://api.example.com:8080/v1",
        "lane_scope": "endpoint",
    }
    plain = {"protocol": "openai", "base_url": "http://other.example.com/v1"}
    settings = Settings.model_validate(
        {
            "connections": {"a": connection, "b": connection, "c": plain},
            "lanes": lanes or {},
            "defaults": defaults or {},
        }
    )
    keys = Keys("test")
    return LaneRegistry(Lanes(redis, keys), LaneSharing(Scopes(redis, keys), settings.connections), settings)


def most_at_once(redis: fakeredis.FakeRedis, lane: str) -> int | None:
    stored = redis.hget(Keys("test").limits(lane), "max_concurrency")
    return int(stored) if stored else None


def test_connections_to_one_server_share_its_lane_where_their_scope_is_the_endpoint() -> None:
    lanes = registry(fakeredis.FakeRedis())
    assert {lanes.lane_of("a:x"), lanes.lane_of("b:y")} == {"http:api.example.com:8080"}


def test_an_endpoint_without_a_configured_limit_begins_with_four_calls_at_once() -> None:
    redis = fakeredis.FakeRedis()
    lanes = registry(redis)
    for model, stated in (("a:x", None), ("python:app:fetch", "crm-api")):
        lane = lanes.lane_of(model, stated)
        lanes.ensure(lane)
        assert most_at_once(redis, lane) is None, "nobody has said so"
        view = Lanes(redis, Keys("test")).view(lane)
        assert view.limits.first_concurrency == ENDPOINT_CONCURRENCY == 4
        assert view.places == Places(4, "search")
        assert used_up_in_words(view, "window", 10) == (
            "0 calls in flight of 4, an estimate, which grows while answers a second do"
        )


def test_the_number_that_an_earlier_version_took_for_a_limit_is_where_the_lane_begins() -> None:
    redis = fakeredis.FakeRedis()
    keys, lane = Keys("test"), "http:api.example.com:8080"
    Lanes(redis, keys).configure(lane, LaneLimits(max_concurrency=ENDPOINT_CONCURRENCY))
    lanes = registry(redis)
    lanes.ensure(lanes.lane_of("a:x"))
    limits = Lanes(redis, keys).view(lane).limits
    assert (limits.max_concurrency, limits.first_concurrency) == (None, ENDPOINT_CONCURRENCY)


def test_a_limit_that_was_set_since_stays() -> None:
    redis = fakeredis.FakeRedis()
    keys, lane = Keys("test"), "http:api.example.com:8080"
    stored = Lanes(redis, keys)
    stored.configure(lane, LaneLimits(max_concurrency=ENDPOINT_CONCURRENCY))
    stored.limit(lane, {"max_concurrency": 7})
    lanes = registry(redis)
    lanes.ensure(lanes.lane_of("a:x"))
    assert stored.view(lane).limits == LaneLimits(max_concurrency=7)


def test_an_endpoint_whose_table_is_gone_begins_with_four_calls_again() -> None:
    redis = fakeredis.FakeRedis()
    lane = endpoint_id("http://api.example.com:8080/v1")
    registry(redis, {lane: LaneLimits(max_concurrency=30, requests_per_minute=60)}).reload()
    assert Lanes(redis, Keys("test")).view(lane).limits.max_concurrency == 30

    registry(redis).reload()
    assert Lanes(redis, Keys("test")).view(lane).limits == LaneLimits(first_concurrency=ENDPOINT_CONCURRENCY)


def test_a_default_of_calls_at_once_is_the_limit_of_an_endpoint() -> None:
    redis = fakeredis.FakeRedis()
    lanes = registry(redis, None, {"max_concurrency": 7})
    lane = lanes.lane_of("a:x")
    lanes.ensure(lane)
    assert Lanes(redis, Keys("test")).view(lane).limits == LaneLimits(max_concurrency=7)


def test_configured_limits_of_an_endpoint_apply() -> None:
    redis = fakeredis.FakeRedis()
    lanes = registry(redis, {"http:api.example.com:8080": LaneLimits(max_concurrency=50)})
    lane = lanes.lane_of("a:x")
    lanes.ensure(lane)
    assert most_at_once(redis, lane) == 50


@pytest.mark.parametrize(
    ("defaults", "most"), [({}, None), ({"profile": "promptfoo"}, 4), ({"max_concurrency": 7}, 7)]
)
def test_the_default_is_the_calls_at_once_of_lanes_without_a_table(
    defaults: dict[str, object], most: int | None
) -> None:
    redis = fakeredis.FakeRedis()
    described = {"c:described": LaneLimits(requests_per_minute=60)}
    lanes = registry(redis, described, defaults)
    for model in ("c:gpt-4o", "python:app:score"):
        lane = lanes.lane_of(model)
        lanes.ensure(lane)
        assert most_at_once(redis, lane) == most
    lanes.ensure(lanes.lane_of("c:described"))
    assert most_at_once(redis, "c:described") is None, "who describes a lane describes all of it"


def test_no_more_calls_are_granted_at_once_than_the_default_says() -> None:
    d = Deployment(fakeredis.FakeRedis())
    lanes = registry(d.redis, None, {"profile": "promptfoo"})
    lanes.ensure(lanes.lane_of("c:gpt-4o"))
    ref = d.submit(rows=10)
    d.feed(ref, 10, "c:gpt-4o")
    granted = 0
    for _ in range(20):  # the lane begins with a low rate
        offers = [Offer(ref, 10)]
        grant = d.lanes.grant(
            "c:gpt-4o", d.epoch, offers, room=100, max_in_flight=100, lease_ms=600_000, now_ms=d.now_ms
        )
        assert grant is not None
        granted += len(grant.permits)
        d.clock.advance(1)
    assert granted == 4


def test_a_models_own_lane_is_not_an_endpoints() -> None:
    redis = fakeredis.FakeRedis()
    lanes = registry(redis)
    for model in ("c:gpt-4o", "python:app:score"):
        lane = lanes.lane_of(model)
        lanes.ensure(lane)
        assert most_at_once(redis, lane) is None
