"""The direct client answers as redis-py does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis
from redis.exceptions import NoScriptError, ResponseError

from fairlane.store.verbs import load_all, script
from tests.support.direct import DirectRedis


@pytest.fixture
def direct(real_redis: Redis) -> Iterator[DirectRedis]:
    with DirectRedis(real_redis.connection_pool.connection_kwargs["path"]) as client:
        yield client


def test_every_kind_of_reply_is_parsed_as_redis_py_does(direct: DirectRedis, real_redis: Redis) -> None:
    for client in (direct, real_redis):
        client.flushall()
        replies = [
            client.set("text", "ü" * 10),
            client.get("text"),
            client.get("nothing"),
            client.hset("hash", mapping={"a": 1, "b": b"\r\n"}),
            client.hgetall("hash"),
            client.sadd("set", "a"),
            client.smembers("set"),
            client.zadd("zset", {"m": 1.5}),
            client.zrange("zset", 0, 0, withscores=True),
            client.lrange("list", 0, -1),
            client.exists("hash"),
            client.eval("return {1, {'two', false}, 'three'}", 0),
            client.info("server")["tcp_port"],
        ]
        if client is direct:
            ours = replies
    assert ours[:8] + ours[9:] == replies[:8] + replies[9:]
    assert [tuple(pair) for pair in ours[8]] == [tuple(pair) for pair in replies[8]]


def test_a_long_reply_arrives_whole(direct: DirectRedis) -> None:
    direct.set("long", b"x" * 1_000_000)

    assert direct.get("long") == b"x" * 1_000_000


def test_a_pipeline_is_answered_in_order(direct: DirectRedis) -> None:
    pipeline = direct.pipeline(transaction=True)
    pipeline.set("a", 1)
    pipeline.get("a")
    pipeline.get("b")

    assert pipeline.execute() == [True, b"1", None]
    assert pipeline.execute() == []


def test_errors_are_raised_and_later_replies_still_match_their_commands(direct: DirectRedis) -> None:
    direct.set("text", "x")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        direct.lrange("text", 0, -1)
    with pytest.raises(NoScriptError):
        direct.evalsha("0" * 40, 0)
    pipeline = direct.pipeline(transaction=False)
    pipeline.llen("text")
    pipeline.get("text")

    refused, text = pipeline.execute(raise_on_error=False)

    assert isinstance(refused, ResponseError)
    assert text == b"x"


def test_scripts_that_were_loaded_can_be_called(direct: DirectRedis) -> None:
    load_all(direct)

    assert direct.script_exists(script("permit_grant").sha) == [True]
