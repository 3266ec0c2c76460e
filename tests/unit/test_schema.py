"""A deployment whose keys an earlier schema wrote is refused with a sentence that says what to do."""

from __future__ import annotations

import pytest
from redis import Redis
from redis.exceptions import NoPermissionError

from fairlane.client.client import Client
from fairlane.config.sections import RedisSettings
from fairlane.config.settings import Settings
from fairlane.core.errors import OldSchema, StoreUnavailable
from fairlane.store.connection.connect import require_schema, require_usable
from fairlane.store.keys import KEY_VERSION, Keys

SETTINGS = RedisSettings(url="redis://:secret@box:6379/0", deployment="main")
OLD = Keys("main", "v1")


def test_keys_of_this_schema_are_accepted(redis: Redis) -> None:
    redis.hset(Keys("main").leader, "id", "a")
    require_schema(redis, SETTINGS)


@pytest.mark.parametrize("key", [OLD.leader, OLD.teams, OLD.lanes])
def test_keys_of_an_earlier_schema_are_refused_with_a_remedy(redis: Redis, key: str) -> None:
    redis.set(key, "x", ex=60)
    with pytest.raises(
        OldSchema, match="finish its runs and delete the keys, or choose another name"
    ) as raised:
        require_schema(redis, SETTINGS)
    assert "fairlane:{main}:v1:*" in str(raised.value)
    assert KEY_VERSION in str(raised.value)
    assert "secret" not in str(raised.value)


def test_another_deployment_s_keys_do_not_matter(redis: Redis) -> None:
    redis.set(Keys("other", "v1").leader, "x", ex=60)
    require_schema(redis, SETTINGS)


def test_a_client_is_refused(redis: Redis) -> None:
    redis.set(OLD.leader, "x", ex=60)
    with pytest.raises(StoreUnavailable, match="written by an earlier version"):
        Client(settings=Settings(redis=SETTINGS), redis=redis)


def test_a_role_ends_before_it_starts(real_redis: Redis) -> None:
    real_redis.set(OLD.leader, "x", ex=60)
    url = f"unix://{real_redis.connection_pool.connection_kwargs['path']}?db=0"
    with pytest.raises(OldSchema):
        require_usable(RedisSettings(url=url), url)


def test_a_user_who_may_not_look_is_not_refused() -> None:
    class Denying:
        def exists(self, *_: str) -> int:
            raise NoPermissionError

    require_schema(Denying(), SETTINGS)
