"""A server that falls silent and ends no connection: nobody waits longer than what depends on it allows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.exceptions import TimeoutError as RedisTimeoutError

from fairlane.config.settings import Settings
from fairlane.embedded.server import EmbeddedRedis
from fairlane.store.connection.connect import open_store
from fairlane_workers.engine import _open_redis
from tests.support.lossy_proxy import LossyProxy, lossy_proxy


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[LossyProxy]:
    with EmbeddedRedis(tmp_path) as server, lossy_proxy(server.url) as between:
        yield between


def settings_at(proxy: LossyProxy, **scheduler: float) -> Settings:
    return Settings.model_validate({"redis": {"url": proxy.url}, "scheduler": scheduler})


@pytest.mark.slow(seconds=4)
def test_a_scheduler_notices_it_once_another_one_may_lead(proxy: LossyProxy) -> None:
    settings = settings_at(proxy)
    with open_store(settings.redis, retries=0, answer_s=settings.scheduler.leader_answer_s) as redis:
        redis.ping()
        proxy.fall_silent()
        began = time.monotonic()
        with pytest.raises(RedisTimeoutError):
            redis.ping()
        assert time.monotonic() - began < settings.scheduler.leader_lease_seconds + 1
        assert redis.ping()


@pytest.mark.slow(seconds=4)
def test_a_worker_notices_it_before_it_counts_as_dead(proxy: LossyProxy) -> None:
    settings = settings_at(proxy)

    async def scenario() -> float:
        redis = _open_redis(settings)
        await redis.ping()
        proxy.fall_silent()
        began = time.monotonic()
        with pytest.raises(RedisTimeoutError):
            await redis.ping()
        assert await redis.ping()
        waited = time.monotonic() - began
        await redis.aclose()
        return waited

    assert asyncio.run(scenario()) < settings.scheduler.worker_timeout_seconds


def test_short_leases_do_not_make_busy_machines_look_dead() -> None:
    section = Settings.model_validate({"scheduler": {"leader_lease_seconds": 0.5}}).scheduler
    assert (section.leader_answer_s, section.worker_answer_s) == (2.0, 2.5)
