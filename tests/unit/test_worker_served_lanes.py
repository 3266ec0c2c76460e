"""A worker serves a lane only if it can make the lane's calls."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from fairlane.config.sections import WorkerSettings
from fairlane.config.settings import Settings
from fairlane.model.lane import lane_key
from fairlane_workers.upkeep.heartbeat import ServedLanes
from tests.support.worker_parts import WorkerParts, on_loop

PROTOCOL = {"protocol": "openai", "auth": "none"}


def served(connections: dict[str, dict[str, Any]], **worker: Any) -> ServedLanes:
    made = {
        name: PROTOCOL | {"base_url": f"http://{name}.invalid/v1"} | each
        for name, each in connections.items()
    }
    settings = Settings.model_validate({"connections": made})
    return ServedLanes(WorkerSettings.model_validate(worker), settings.connections)


def catalog(**owners: str) -> bytes:
    return json.dumps({"connections": {name: {"lanes": owner} for name, owner in owners.items()}}).encode()


def test_lanes_of_connections_that_a_worker_lacks_are_not_served() -> None:
    lanes = ("sim:a", "sim:b", "simulated:a", "gone:a", "gone", "sim")
    assert served({"sim": {}}).of(lanes, None) == ["sim", "sim:a", "sim:b"]
    assert served({}).of(lanes, None) == []


def test_lanes_that_a_connection_shares_are_served() -> None:
    lanes = ("first:m", "second:m", "third:m")
    assert served({"second": {}}).of(lanes, catalog(first="first", second="first")) == ["first:m", "second:m"]
    assert served({"second": {}}).of(lanes, b"no catalog") == ["second:m"]


def test_the_lane_of_an_endpoint_needs_a_connection_to_it() -> None:
    local = {"base_url": "http://box:8000/v1", "lane_scope": "endpoint"}
    lanes = ("http:box:8000", "http:box:8001", "http:m")
    assert served({"local": local}).of(lanes, None) == ["http:box:8000"]


def test_functions_need_modules_and_bounds_hold() -> None:
    lanes = ("python:f", "sim:fast", "sim:slow")
    assert served({"sim": {}}).of(lanes, None) == ["sim:fast", "sim:slow"]
    assert served({}, modules=("m",)).of(lanes, None) == ["python:f"]
    assert served({"sim": {}}, lanes=("sim:s*",)).of(lanes, None) == ["sim:slow"]


@pytest.mark.parametrize("seed", range(20))
def test_every_lane_that_a_connection_can_have_is_served_by_its_workers_alone(seed: int) -> None:
    rng = random.Random(seed)
    scopes = ("model", "connection", "endpoint")
    made: dict[str, dict[str, Any]] = {
        f"c{n}": {"lane_scope": rng.choice(scopes), "base_url": f"https://h{n}.invalid/v1"} for n in range(6)
    }
    lanes = {name: lane_key(name, "m:x", each["lane_scope"], each["base_url"]) for name, each in made.items()}
    has = {name for name in made if rng.random() < 0.5}
    found = served({name: made[name] for name in has}).of(lanes.values(), None)
    assert found == sorted(lanes[name] for name in has)


def test_a_worker_takes_no_work_of_a_connection_that_it_lacks() -> None:
    async def scene(parts: WorkerParts) -> None:
        for lane in ("sim:fast", "gone:fast"):
            parts.scheduler.lanes.configure(lane, None)
        await parts.heartbeat.beat()
        assert parts.wanted == [["sim:fast"]]

    on_loop(scene)
