"""Redis for tests: one real server per session, fakeredis, and a check for leaked keys."""

from __future__ import annotations

import re
from collections.abc import Iterator

import fakeredis
import pytest
from redis import Redis

from fairlane.embedded.server import EmbeddedRedis
from fairlane.store.verbs import load_all

# Keys that live as long as the deployment (`store/keys.py`); the janitor sweeps `run:<team>:index`.
PERMANENT = re.compile(
    r"leader|teams|registry|audit|salt|lanes|configured|openers|scopes|workers|catalog|run:[^:]+:(index|budget)|budgets"
    r"|lane:.*:(state|limits|owed|headroom:(tokens|input|output))"
    # Sets of pending work: Redis deletes a set with its last entry, so one that exists has work left.
    r"|dirty|starved"
)


@pytest.fixture(scope="session")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    """A client of a real server that the session shares and that writes nothing to disk."""
    with (
        EmbeddedRedis(tmp_path_factory.mktemp("redis"), unix_socket=True) as embedded,
        Redis.from_url(embedded.url) as client,
    ):
        client.config_set("appendonly", "no")
        yield client


@pytest.fixture
def real_redis(real_server: Redis) -> Redis:
    """The real server, empty but for its loaded scripts."""
    return emptied(real_server)


@pytest.fixture
def fake_redis() -> Iterator[Redis]:
    """A new, empty fakeredis."""
    with fakeredis.FakeRedis(server=fakeredis.FakeServer()) as client:
        yield emptied(client)


@pytest.fixture(params=["real", "fake"])
def redis(request: pytest.FixtureRequest) -> Redis:
    """Runs a contract test on both implementations: the real server and fakeredis."""
    client: Redis = request.getfixturevalue(f"{request.param}_redis")
    return client


@pytest.fixture
def no_keys_left(real_redis: Redis) -> Iterator[None]:
    """Fails a test that leaves a key which has no expiry and is not permanent, after its runs have ended."""
    yield
    left = leaked_keys(real_redis)
    assert not left, f"left without a TTL: {left}"


def emptied(client: Redis) -> Redis:
    """``client``, after deleting all keys on its server; loaded scripts stay."""
    client.flushall()
    load_all(client)
    return client


def leaked_keys(client: Redis) -> list[str]:
    """The keys that have no expiry and are not permanent. Call it when all runs have ended."""
    return sorted(
        key.decode()
        for key in client.scan_iter(count=1000)
        if client.ttl(key) == -1 and not PERMANENT.fullmatch(key.decode().partition(":v2:")[2])
    )
