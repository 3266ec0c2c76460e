"""The fixture ``real_redis`` of tests that are the only caller of their server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis

from fairlane.lab.rehearsal.virtual.backend import DirectRedis
from tests.support.redis import emptied


@pytest.fixture
def real_redis(real_server: Redis) -> Iterator[Redis]:
    """The real server, empty, with every script loaded. A folder's conftest imports it for all its tests.

    Simulations and properties send tens of thousands of small commands one after another: there redis-py
    costs more than the server. Its own ways are tested where processes are real.
    """
    with DirectRedis(real_server.connection_pool.connection_kwargs["path"]) as client:
        yield emptied(client)
