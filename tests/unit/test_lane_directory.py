"""Where a model's calls go: as the scheduler has published it, else as the settings say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from redis import Redis

from fairlane.config.connections.connection import Connection
from fairlane.store.keys import Keys
from fairlane.store.read.reading import LaneDirectory

KEYS = Keys("test")
SIM = Connection.model_validate({"protocol": "openai", "base_url": "http://sim/v1"})
PUBLISHED = {
    "first": {"protocol": "openai", "scope": "model", "lanes": "first"},
    "second": {"protocol": "openai", "scope": "model", "lanes": "first"},
    "claude": {"protocol": "anthropic", "scope": "connection", "lanes": "claude"},
    "opus": {"protocol": "anthropic", "scope": "connection", "lanes": "claude"},
    "api": {"protocol": "http", "scope": "endpoint", "lanes": "http:api:80"},
    "older": {"protocol": "openai", "scope": "model"},
}


@pytest.mark.parametrize(
    ("model", "stated", "lane"),
    [
        ("first:m", None, "first:m"),
        ("second:m:latest", None, "first:m:latest"),
        ("opus:any", None, "claude"),
        ("api:any", None, "http:api:80"),
        ("python:mine.tasks:f", None, "python:mine.tasks:f"),
        ("python:mine.tasks:f", "crm", "python:crm"),
        ("sim:m", None, "sim:m"),
        ("older:m", None, None),
        ("nobody:m", None, None),
        ("no model", None, None),
    ],
)
def test_a_model_has_one_lane(model: str, stated: str | None, lane: str | None) -> None:
    assert LaneDirectory(PUBLISHED, {"sim": SIM}).lane_of(model, stated) == lane


@pytest.mark.parametrize(
    ("lane", "carrier"),
    [
        ("second:m", "first:m"),
        ("first:m", "first:m"),
        ("opus", "claude"),
        ("http:api:80", "http:api:80"),
        ("older:m", "older:m"),
        ("nobody:m", "nobody:m"),
        ("python:f", "python:f"),
    ],
)
def test_a_lane_is_carried_by_the_one_with_which_it_shares_its_limit(lane: str, carrier: str) -> None:
    assert LaneDirectory(PUBLISHED).carrier(lane) == carrier


@pytest.mark.parametrize(
    "scope", [{"lane_scope": "connection"}, {"lane_scope": "model"}, {"lane_scope": "endpoint"}]
)
def test_before_any_scheduler_has_led_the_settings_count(fake_redis: Redis, scope: dict[str, Any]) -> None:
    known = {"sim": Connection.model_validate({**SIM.model_dump(exclude_unset=True), **scope})}
    expected = {"connection": "sim", "model": "sim:m", "endpoint": "http:sim"}[scope["lane_scope"]]
    assert LaneDirectory.read(fake_redis, KEYS, known).lane_of("sim:m") == expected


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"connections": 3}', '{"connections": {"first": 3}}'])
def test_a_catalog_that_cannot_be_read_reports_nothing(fake_redis: Redis, text: str) -> None:
    fake_redis.set(KEYS.catalog, text)
    assert LaneDirectory.read(fake_redis, KEYS).carrier("second:m") == "second:m"
    assert not LaneDirectory.read(fake_redis, KEYS).names
    fake_redis.set(KEYS.catalog, json.dumps({"connections": PUBLISHED}))
    assert LaneDirectory.read(fake_redis, KEYS).carrier("second:m") == "first:m"
    assert LaneDirectory.read(fake_redis, KEYS).names == frozenset(PUBLISHED)
