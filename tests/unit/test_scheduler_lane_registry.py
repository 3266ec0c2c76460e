"""Models to lanes: scopes, hints for the mistyped, limits as configured, and an end to their number."""

from __future__ import annotations

import fakeredis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import Redis
from structlog.testing import capture_logs

from fairlane.config.settings import Settings
from fairlane.core.errors import UnknownModel
from fairlane.model.lane import LaneLimits
from fairlane.store.keys import Keys
from fairlane.store.write.lanes.lanes import Lanes
from fairlane.store.write.scopes import Scopes
from fairlane_scheduler.lanes import registry as lane_registry
from fairlane_scheduler.lanes.registry import ConnectionAwaited, LaneRegistry
from fairlane_scheduler.lanes.sharing import LaneSharing
from tests.support.scheduler_parts import CONNECTIONS

LIMITS = st.fixed_dictionaries(
    {}, optional={"requests_per_minute": st.integers(1, 900), "max_concurrency": st.integers(1, 9)}
)


@pytest.fixture
def lanes(fake_redis: Redis) -> Lanes:
    return Lanes(fake_redis, Keys("test"))


def registry(lanes: Lanes, **limits: dict[str, float]) -> LaneRegistry:
    """A registry of a deployment in which no scope has been saved yet."""
    settings = Settings.model_validate(
        {"connections": CONNECTIONS, "lanes": {f"sim:{name}": each for name, each in limits.items()}}
    )
    scopes = Scopes(fakeredis.FakeRedis(), Keys("test"))
    return LaneRegistry(lanes, LaneSharing(scopes, settings.connections), settings)


def test_a_lane_is_the_models_or_its_connections(lanes: Lanes) -> None:
    known = registry(lanes)

    assert known.lane_of("sim:gpt-4o:latest") == "sim:gpt-4o:latest"
    assert known.lane_of("shared:claude") == "shared"


def test_an_unknown_connection_is_named_with_the_one_that_may_be_meant(lanes: Lanes) -> None:
    with pytest.raises(UnknownModel, match="did you mean 'shared'"):
        registry(lanes).lane_of("shard:x")
    with pytest.raises(UnknownModel, match=r"there are: \['shared', 'sim'\]"):
        registry(lanes).lane_of("zzz:x")


def test_configured_lanes_are_there_with_their_limits_before_they_are_used(lanes: Lanes) -> None:
    registry(lanes, fast={"requests_per_minute": 60}).reload()

    assert lanes.view("sim:fast").limits.requests_per_minute == 60


def test_what_was_set_while_running_stays_unless_the_configuration_says_otherwise(lanes: Lanes) -> None:
    known = registry(lanes, fast={"requests_per_minute": 60})
    known.reload()
    lanes.limit("sim:fast", {"max_concurrency": 3, "requests_per_minute": 10})

    known.reload()

    limits = lanes.view("sim:fast").limits
    assert (limits.requests_per_minute, limits.max_concurrency) == (10, 3)

    registry(lanes, fast={"requests_per_minute": 90}).reload()

    limits = lanes.view("sim:fast").limits
    assert (limits.requests_per_minute, limits.max_concurrency) == (90, 3)


def test_a_limit_that_the_configuration_takes_back_is_gone(lanes: Lanes) -> None:
    registry(lanes, fast={"requests_per_minute": 60, "max_concurrency": 5}).reload()

    registry(lanes, fast={"requests_per_minute": 60}).reload()

    assert lanes.view("sim:fast").limits.max_concurrency is None


def test_the_limits_of_a_table_that_is_gone_are_gone(lanes: Lanes) -> None:
    registry(lanes, fast={"requests_per_minute": 60}, slow={"max_concurrency": 2}).reload()
    lanes.limit("sim:fast", {"tokens_per_minute": 900})

    registry(lanes, slow={"max_concurrency": 2}).reload()

    limits = lanes.view("sim:fast").limits
    assert (limits.requests_per_minute, limits.tokens_per_minute) == (None, 900)
    assert lanes.view("sim:slow").limits.max_concurrency == 2


@given(st.lists(st.dictionaries(st.sampled_from(["fast", "slow"]), LIMITS), min_size=1, max_size=5))
def test_a_lane_has_the_limits_of_the_last_configuration(tables: list[dict[str, dict[str, float]]]) -> None:
    lanes = Lanes(fakeredis.FakeRedis(), Keys("test"))
    for each in tables:
        registry(lanes, **each).reload()
    for name in lanes.names():
        said = tables[-1].get(name.removeprefix("sim:"), {})
        assert lanes.view(name).limits == LaneLimits.model_validate(said)


def test_a_connection_that_is_gone_keeps_its_lanes_limits(lanes: Lanes) -> None:
    registry(lanes, fast={"requests_per_minute": 60}).reload()
    others = registry(lanes)
    others._connections = {"other": Settings.model_validate({"connections": CONNECTIONS}).connections["sim"]}

    others.reload()

    assert lanes.view("sim:fast").limits.requests_per_minute == 60


def test_a_new_lane_is_reported_once(lanes: Lanes) -> None:
    known = registry(lanes)

    with capture_logs() as logs:
        known.ensure("sim:new")
        known.ensure("sim:new")
        registry(lanes).ensure("sim:new")

    assert [(line["event"], line["lane"]) for line in logs] == [("lane_created", "sim:new")]
    assert known.names() == ["sim:new"]


def test_lanes_have_an_end_but_those_that_are_known_stay_in_use(
    lanes: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_registry, "MOST_LANES", 2)
    known = registry(lanes)
    for lane in ("sim:a", "sim:b"):
        known.ensure(known.lane_of(lane))

    assert known.lane_of("sim:a") == "sim:a"
    with pytest.raises(UnknownModel, match="there are 2 lanes already"):
        known.lane_of("sim:c")


def test_a_team_opens_no_more_lanes_than_it_may_and_leaves_room_for_others(
    lanes: Lanes,
) -> None:
    known = registry(lanes, described={"requests_per_minute": 60})
    known.most_of_team = 3
    known.reload()
    for model in ("sim:a", "sim:b", "sim:c", "sim:a"):  # named only: they are created when they are fed
        known.lane_of(model, team="flood")

    with pytest.raises(UnknownModel, match="team flood has opened 3 lanes"):
        known.lane_of("sim:d", team="flood")
    assert known.lane_of("sim:described", team="flood") == "sim:described"
    assert known.lane_of("sim:d", team="other") == "sim:d"
    assert known.lane_of("sim:d", team="flood") == "sim:d", "another team has opened it"

    known.ensure("sim:a")
    known.forget_opening()
    assert known.opened_by("flood") == 1
    again = registry(lanes)
    again.reload()
    assert again.openers == {"sim:a": "flood"}, "the next leader knows who has opened it"


@pytest.mark.parametrize(
    "name",
    ["A" * 100_000, "\x1b]0;pwned\x07", "a\nb", "a\x00b", "a\u202eb", "x|b/run-of-another-team"],
)
def test_a_function_s_name_and_lane_are_short_and_printable(lanes: Lanes, name: str) -> None:
    known = registry(lanes)
    with pytest.raises(UnknownModel) as refused:
        known.lane_of(f"python:{name}")
    assert len(str(refused.value)) < 1000
    with pytest.raises(UnknownModel):
        known.lane_of("python:tasks.fetch", name)
    assert known.lane_of("python:tasks.fetch", "api.example") == "python:api.example"


def test_an_item_of_a_connection_that_others_have_waits(lanes: Lanes) -> None:
    known = registry(lanes)
    with pytest.raises(UnknownModel, match="did you mean 'shared'"):
        known.lane_of_item("shard:x")
    known.note_reported(["shard"])
    with pytest.raises(ConnectionAwaited):
        known.lane_of_item("shard:x")
    with pytest.raises(UnknownModel, match="did you mean 'shared'"):
        known.lane_of("shard:x")
    known.note_reported([])
    with pytest.raises(ConnectionAwaited):
        known.lane_of_item("shard:x", checked=True)


def test_an_item_goes_to_the_lane_that_its_connection_had(lanes: Lanes) -> None:
    lanes.configure("old:x", None)
    lanes.configure("whole", None)
    known = registry(lanes)
    known.reload()
    assert known.lane_of_item("old:x") == "old:x"
    assert known.lane_of_item("whole:anything") == "whole"
    with pytest.raises(ConnectionAwaited):
        known.lane_of_item("old:another")


@pytest.mark.parametrize(
    "model", ["sim", "", ":", "nowhere", "nowhere:", f"nowhere:{'x' * 300}", "nowhere:\n"]
)
def test_an_item_of_a_model_that_is_none_stays_invalid(lanes: Lanes, model: str) -> None:
    with pytest.raises(UnknownModel):
        registry(lanes).lane_of_item(model)


def test_lanes_that_redis_has_lost_from_its_set_are_there_again(lanes: Lanes, fake_redis: Redis) -> None:
    keys = Keys("test")
    known = registry(lanes, fast={"requests_per_minute": 60})
    known.reload()
    known.ensure("sim:other")
    lanes.limit("sim:fast", {"requests_per_minute": 90})
    heard = fake_redis.pubsub(ignore_subscribe_messages=True)
    heard.subscribe(keys.control)
    heard.get_message(timeout=0)
    fake_redis.delete(keys.lanes)

    with capture_logs() as logs:
        known.restore(["sim:queued"])
        known.restore(["sim:queued"])

    assert lanes.names() == ["sim:fast", "sim:other", "sim:queued"]
    assert lanes.view("sim:fast").limits.requests_per_minute == 90, "what an operator has set stays"
    messages = [heard.get_message(timeout=0.1) for _ in range(3)]
    assert [message and message["data"] for message in messages] == [b"lanes"] * 3, "workers consume them"
    lines = [line for line in logs if line["event"] == "index_restored"]
    assert [(line["index"], line["entries"]) for line in lines] == [("lanes", 3)]


def test_a_lane_that_is_forgotten_is_not_restored(lanes: Lanes, fake_redis: Redis) -> None:
    known = registry(lanes)
    known.ensure("sim:once")
    fake_redis.srem(Keys("test").lanes, "sim:once")
    known.forget("sim:once")

    known.restore([])

    assert lanes.names() == []
