"""A team may write what it likes below its own prefix: nobody else notices."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from fairlane.model.run import Plan, RunRef
from fairlane.store.run_queries import read_hostile
from fairlane.store.write.runs.inbox import Inbox
from tests.support.conservation import Books
from tests.support.deployment import Deployment, make_spec

pytestmark = pytest.mark.servers

WRITERS: dict[str, Callable[[Redis, str], object]] = {
    "string": lambda redis, key: redis.set(key, b"\xff\x00"),
    "list": lambda redis, key: redis.rpush(key, b"\xff"),
    "hash": lambda redis, key: redis.hset(key, "0", b"\xff"),
    "set": lambda redis, key: redis.sadd(key, "x"),
    "zset": lambda redis, key: redis.zadd(key, {"x": 1}),
    "stream": lambda redis, key: redis.xadd(key, {"x": "1"}),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_an_inbox_that_is_no_list_is_thrown_away_and_works_again(redis: Redis, kind: str) -> None:
    d = Deployment(redis)
    inbox, key = Inbox(redis, d.keys), d.keys.inbox("search")
    WRITERS[kind](redis, key)
    assert all(request is None for request in inbox.peek("search"))
    inbox.drop("search", 1)
    redis.rpush(key, '{"op": "cancel", "run": "r1"}')
    assert [request and request.run for request in inbox.peek("search")] == ["r1"]


@pytest.mark.parametrize("kind", WRITERS)
def test_a_spec_and_rows_of_any_type_are_read_as_bytes_or_nothing(redis: Redis, kind: str) -> None:
    d = Deployment(redis)
    ref = RunRef("search", "r1")
    WRITERS[kind](redis, d.keys.spec(ref))
    WRITERS[kind](redis, d.keys.rows(ref))
    assert d.runs.spec_text(ref) == (b"\xff\x00" if kind == "string" else None)
    assert d.runs.page(ref, 0) == (b"\xff" if kind == "hash" else None)


@pytest.mark.parametrize("kind", WRITERS)
def test_a_run_whose_upload_is_of_the_wrong_type_ends_and_expires_all_the_same(
    redis: Redis, kind: str
) -> None:
    d = Deployment(redis)
    d.lane()
    ref = RunRef("search", "r1")
    for key in (d.keys.spec(ref), d.keys.rows(ref)):
        WRITERS[kind](redis, key)
    spec = make_spec("search", "r1", 2, 0, d.now_ms)
    assert d.runs.admit(Plan(spec=spec), d.epoch, d.now_ms) == 1
    d.feed(ref, 2)
    assert d.finish(d.start(ref)[0]) is not None
    Books(redis, d.keys).check()
    assert d.cancel(ref) == 1
    Books(redis, d.keys).check()


def test_a_team_name_that_is_no_text_hides_no_other(redis: Redis) -> None:
    d = Deployment(redis)
    redis.sadd(d.keys.teams, b"\xff\xfe", "search")
    assert "search" in Inbox(redis, d.keys).teams()


def test_any_other_refusal_of_the_server_is_not_taken_for_nothing() -> None:
    def refused() -> None:
        raise ResponseError("NOPERM this user has no permissions")

    with pytest.raises(ResponseError, match="NOPERM"):
        read_hostile(refused)
