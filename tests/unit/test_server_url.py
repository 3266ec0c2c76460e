"""URLs of Redis and of brokers: what may stand in them, and that no message shows a password."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.broker.app import make_app
from fairlane.config.loader import load_settings
from fairlane.config.sections import CelerySettings, RedisSettings
from fairlane.config.settings import Settings
from fairlane.core.errors import ConfigurationError
from fairlane.core.redaction import HIDDEN, shown_url
from fairlane.store.connection.connect import open_redis

KEYS = pytest.mark.parametrize("key", [("redis", "url"), ("celery", "broker_url")])
OPTIONS = (
    *(
        "health_check_interval=5",
        "socket_timeout=3",
        "timeout=3",
        "client_name=x",
        "protocol=3",
        "max_connections=9",
    ),
    *("decode_responses=True", "ssl_ca_certs=/ca", "virtual_host=1", "sentinel_password=x", "flag"),
)
SIGNS = ("#", "/", "?", "@", ":", "'", '"', " ", "\t", "/?", "#@", "?x=", "@v?x", ":1/")
SENTINELS = "redis+sentinel://one,two/mymaster"


def read(section: str, key: str, url: str) -> Settings:
    overrides: dict[str, Any] = {section: {key: url}}
    return load_settings(environ={}, **overrides)


def redis_url(url: str) -> str:
    return load_settings(environ={}, redis={"url": url}).redis.url


def said_of(url: str, section: str, key: str) -> str:
    """What the settings say of a URL; empty if they take it."""
    return words_of(lambda: read(section, key, url))


def words_of(make: Callable[[], object]) -> str:
    """The words with which something is refused; empty if it is not."""
    try:
        make()
    except ConfigurationError as error:
        return f"{error} {error.value}"
    return ""


def refused(url: str, section: str = "redis", key: str = "url") -> str:
    with pytest.raises(ConfigurationError) as caught:
        read(section, key, url)
    assert caught.value.field == f"{section}.{key}"
    return str(caught.value)


@pytest.mark.parametrize("option", OPTIONS)
@KEYS
def test_an_option_that_only_one_library_takes_is_named(option: str, key: tuple[str, str]) -> None:
    name = option.partition("=")[0]
    assert f"the option '{name}' cannot be set" in refused(f"redis://host:1/0?{option}", *key)
    assert f"the option '{name}' cannot be set" in refused(f"redis+cluster://host:1?{option}")


@pytest.mark.parametrize("option", ["db=1", "socket_timeout=1", "ssl_ca_certs=/ca"])
def test_sentinels_take_their_own_password_and_no_other_option(option: str) -> None:
    assert "cannot be set in this URL" in refused(f"{SENTINELS}?{option}")
    assert redis_url(f"{SENTINELS}?sentinel_password=guard")


@pytest.mark.parametrize("url", ["redis://host?db=1", "redis://host/?db=1", "redis://host/1?db=1"])
def test_both_libraries_find_the_database_wherever_it_is_written(url: str) -> None:
    settings = Settings.model_validate({"redis": {"url": url}})
    assert settings.redis.url == "redis://host/1"
    with open_redis(settings.redis.url) as client:
        assert client.connection_pool.connection_kwargs["db"] == 1
    broker: Any = make_app(settings, "test")
    assert broker.connection_for_write().virtual_host == "1"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("redis://host/x", "a database is one number"),
        ("redis://host/1/2", "a database is one number"),
        ("redis://host/1?db=2", "a database is one number"),
        ("redis://host?db=-1", "a database is one number"),
        ("redis:///0", "names no host"),
        ("redis://", "names no host"),
        ("redis://host:99999/0", "no number up to 65535"),
        ("redis+sentinel://one:99999/mymaster", "no number up to 65535"),
        ("redis+cluster://one:port", "no number up to 65535"),
        ("redis://[::1/0", "is no URL"),
        ("unix://", "names no socket"),
        ("unix:///r.sock?db=x", "a database is a number"),
        ("rediss://host?ssl_cert_reqs=none&ssl_cert_reqs=required", "named twice"),
    ],
)
def test_a_url_that_cannot_be_read_is_a_mistake_in_the_settings(url: str, problem: str) -> None:
    assert problem in refused(url)


SECRET = "S3cretPart"


@pytest.mark.parametrize(
    "sign", ["#", "/", "?", "@", ":", "'", '"', " ", "\t", "/?", "#@", "?x=", "@v?x", ":1/"]
)
@pytest.mark.parametrize(
    "frame",
    ["redis://:{}@host/0", "redis://u:{}@host", "rediss+sentinel://:{}@a,b/m", "redis+cluster://:{}@a,b"],
)
@KEYS
def test_no_part_of_a_password_is_shown_whatever_sign_is_in_it(
    sign: str, frame: str, key: tuple[str, str]
) -> None:
    for password in (f"{SECRET}{sign}more", f"more{sign}{SECRET}", f"1{sign}{SECRET}", f"{sign}{SECRET}"):
        assert SECRET not in said_of(frame.format(password), *key)


@pytest.mark.parametrize("sign", ["", "#", "/", "@", ":", " ", "?x="])
@pytest.mark.parametrize(
    "frame", ["redis:/:{}@host/0", "redis//u:{}@host", ":{}@host/0", "redis:{}@host", "http://u:{}@host/0"]
)
@KEYS
def test_no_password_of_a_malformed_url_is_shown(frame: str, sign: str, key: tuple[str, str]) -> None:
    url = frame.format(f"{SECRET}{sign}more")
    assert SECRET not in shown_url(url)
    assert SECRET not in said_of(url, *key)
    made: Any = {"redis": RedisSettings, "celery": CelerySettings}[key[0]]
    assert SECRET not in words_of(lambda: made(**{key[1]: url}))


def test_the_remedy_says_how_to_write_the_password() -> None:
    said = refused("redis://:S3cretPart#rest@host")
    assert "%23" in said
    assert "%2F" in said
    assert HIDDEN in said
    assert "S3cret" not in said
    assert "%23" in refused("amqp://u:pass#word@rabbit//", "celery", "broker_url")


@given(st.text(min_size=1, max_size=20))
def test_what_is_shown_of_a_url_has_no_password(password: str) -> None:
    long = f"{SECRET}{password}"
    for url in (f"redis://:{long}@host/0", f"amqp://u:{long}@host//"):
        assert SECRET not in shown_url(url)


@pytest.mark.parametrize(
    "url", ["amqp://u:p@rabbit:5672/fairlane?heartbeat=30", "memory://", "amqp://a//;amqp://b//"]
)
def test_other_brokers_keep_their_own_options(url: str) -> None:
    assert load_settings(environ={}, celery={"broker_url": url}).broker_url == url
