"""An address behind which another server becomes the primary: clients leave the one that was demoted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.exceptions import ReadOnlyError

from fairlane.embedded.server import EmbeddedRedis
from fairlane.store.connection import primary_pool
from fairlane.store.connection.connect import open_redis
from fairlane.store.connection.server_states import REPLICA, refusing_state
from tests.support.lossy_proxy import LossyProxy, lossy_proxy


class Failover(NamedTuple):
    """Two servers, of which an address names the first until `happens`."""

    address: LossyProxy
    old: Redis
    new: Redis
    new_url: str

    def happens(self) -> None:
        """The second server is the primary now, and the first its replica, as an operator's tools do it."""
        self.address.turn_to(self.new_url)
        self.old.config_set("replica-serve-stale-data", "yes")
        self.old.replicaof("127.0.0.1", "1")  # nobody is there, so that it keeps what it had


@pytest.fixture
def failover(tmp_path: Path) -> Iterator[Failover]:
    with ExitStack() as stack:
        first, second = (stack.enter_context(EmbeddedRedis(tmp_path / name)) for name in ("a", "b"))
        old, new = (stack.enter_context(Redis.from_url(server.url)) for server in (first, second))
        address = stack.enter_context(lossy_proxy(first.url))
        old.set("whose", "old")
        new.set("whose", "new")
        yield Failover(address, old, new, second.url)


@pytest.mark.slow(seconds=2)
def test_a_client_that_writes_reaches_the_new_primary_with_its_next_command(failover: Failover) -> None:
    with open_redis(failover.address.url) as client:
        client.set("before", "here")
        failover.happens()

        with pytest.raises(ReadOnlyError) as raised:
            client.set("after", "here")
        assert refusing_state(raised.value) is REPLICA, "the words say what is wrong if it stays so"

        client.set("after", "here")
        assert failover.new.exists("after")


@pytest.mark.slow(seconds=2)
def test_so_does_a_worker(failover: Failover) -> None:
    async def scenario() -> None:
        pool = primary_pool.async_primary_pool(failover.address.url, "main")
        client: Any = AsyncRedis.from_pool(pool)
        await client.set("before", "here")
        failover.happens()
        with pytest.raises(ReadOnlyError):
            await client.set("after", "here")
        await client.set("after", "here")
        await client.aclose()

    asyncio.run(scenario())
    assert failover.new.exists("after")


@pytest.mark.slow(seconds=2)
def test_a_client_that_only_reads_reaches_it_once_its_connection_is_old(
    failover: Failover, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_redis(failover.address.url) as client:
        assert client.get("whose") == b"old"
        failover.happens()
        assert client.get("whose") == b"old"

        now = primary_pool.monotonic()
        monkeypatch.setattr(primary_pool, "monotonic", lambda: now + primary_pool.MOST_AGE_S)
        assert client.get("whose") == b"new"


def test_a_subscription_outlives_the_age_of_its_connection(
    failover: Failover, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_redis(failover.address.url) as client, client.pubsub(ignore_subscribe_messages=True) as heard:
        heard.subscribe("first")
        heard.get_message(timeout=1)
        now = primary_pool.monotonic()
        monkeypatch.setattr(primary_pool, "monotonic", lambda: now + primary_pool.MOST_AGE_S)
        heard.subscribe("second")
        heard.get_message(timeout=1)
        heard.get_message(timeout=1)

        assert failover.old.publish("first", "still heard") == 1
        assert heard.get_message(timeout=1)["data"] == b"still heard"
