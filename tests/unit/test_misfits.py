"""A server that answers and cannot serve: a user without a right, a cluster under a plain URL."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import (
    AuthenticationError,
    ClusterCrossSlotError,
    MovedError,
    NoPermissionError,
    RedisError,
    ResponseError,
)

import fairlane
from fairlane.client.deployment import Deployment
from fairlane.config.settings import Settings
from fairlane.core.errors import StoreRefuses
from fairlane.store.connection import connect
from fairlane.store.connection.connect import require_rights, require_usable, unavailable
from fairlane.store.connection.misfits import (
    CLUSTERED,
    COMMANDS,
    OF_QUEUES,
    misfit_of,
    missing_commands,
    missing_right,
)
from fairlane.store.connection.tls_errors import in_words
from fairlane.store.keys import Keys

URL = "redis://:***@host:6379/0"
KEYS = Keys("main")

SAID = [
    (NoPermissionError("this user has no permissions to access one of the channels used as arguments"), "&*"),
    (NoPermissionError("No permissions to access a channel"), "&*"),
    (NoPermissionError("this user has no permissions to access one of the keys used as arguments"), "~*"),
    (NoPermissionError("No permissions to access a key"), "~*"),
    (NoPermissionError("User fl has no permissions to run the 'keys' command"), "+@all"),
    (NoPermissionError("this user has no permissions to run the 'pubsub|channels' command"), "+@all"),
    (
        ResponseError("The user executing the script can't publish to the channel mentioned"),
        "&*",
    ),
    (
        ResponseError("ACL failure in script: No permissions to access a channel script: on @user_script:1."),
        "&*",
    ),
    (ResponseError("The user executing the script can't access at least one of the keys mentioned"), "~*"),
    (ResponseError("The user executing the script can't run this command or subcommand script: a"), "+@all"),
    (
        NoPermissionError(
            "Command # 1 (LPUSH keys channel) of pipeline caused error: No permissions to access a channel"
        ),
        "&*",
    ),
]


@pytest.mark.parametrize(("error", "rule"), SAID)
def test_a_denied_right_is_named_by_the_rule_that_grants_it(error: RedisError, rule: str) -> None:
    shown = unavailable(URL, error)
    assert isinstance(shown, StoreRefuses)
    for text in (str(shown), in_words(error)):
        assert f"ACL SETUSER NAME {rule}" in text
    assert "cannot reach" not in str(shown)
    assert "Start one" not in str(shown)


@pytest.mark.parametrize("error", [MovedError("12 127.0.0.1:7001"), ClusterCrossSlotError("two slots")])
def test_a_node_of_a_cluster_is_named_as_one(error: RedisError) -> None:
    assert misfit_of(error) is CLUSTERED
    assert "redis+cluster://" in str(unavailable(URL, error))


def test_a_server_that_answers_an_error_is_not_unreachable() -> None:
    shown = unavailable(URL, ResponseError("NOTBUSY No scripts in execution right now"))
    assert "Redis answered NOTBUSY" in str(shown)
    assert "cannot reach" not in str(shown)
    assert misfit_of(ResponseError("NOTBUSY No scripts in execution right now")) is None


UserOf = Callable[..., Redis]


@pytest.fixture
def user_of(real_redis: Redis) -> Iterator[UserOf]:
    """A connection of a user with these rules."""
    opened: list[Redis] = []

    def connected(*rules: str) -> Redis:
        real_redis.execute_command("ACL", "SETUSER", "role", "reset", "on", ">pw", *rules)
        path = real_redis.connection_pool.connection_kwargs["path"]
        opened.append(Redis.from_url(f"unix://role:pw@{path}?db=0"))
        return opened[-1]

    yield connected
    for each in opened:
        each.close()
    real_redis.acl_deluser("role")


@pytest.mark.servers
@pytest.mark.parametrize(
    ("rules", "lacks"),
    [
        (("~*", "&*", "+@all"), None),
        (("~*", "resetchannels", "+@all"), "&*"),
        (("~*", "resetchannels", f"&{KEYS.wake}", "+@all"), "&*"),
        (("~fairlane:*", "&*", "+@all"), "~*"),
        (("~*", "&*", "+@all", "-subscribe"), "+@all"),
        (("~*", "&*", "+@all", "-eval"), "+@all"),
    ],
)
def test_rights_are_tried_before_a_role_starts(
    user_of: UserOf, real_redis: Redis, rules: tuple[str, ...], lacks: str | None
) -> None:
    real_redis.set("kept", "here")
    before = real_redis.dbsize()
    missing = missing_right(user_of(*rules), KEYS, broker=True)
    assert (None if missing is None else missing.remedy.rpartition(" ")[2]) == lacks
    assert real_redis.dbsize() == before, "trying has no effect"


def test_a_server_with_a_broker_of_its_own_needs_no_rights_for_queues(user_of: UserOf) -> None:
    client = user_of("~fairlane:*", f"&{KEYS.prefix}*", "+@all")
    assert missing_right(client, KEYS, broker=False) is None
    assert missing_right(client, KEYS, broker=True) is not None


def test_a_role_whose_user_lacks_a_right_ends_with_the_rule(user_of: UserOf, real_redis: Redis) -> None:
    user_of("~*", "resetchannels", "+@all")
    url = f"unix://role:pw@{real_redis.connection_pool.connection_kwargs['path']}?db=0"
    settings = Settings.model_validate({"redis": {"url": url}})
    with pytest.raises(StoreRefuses, match="needs &"):
        require_rights(settings.redis, settings.broker_url)


def test_a_cluster_under_a_plain_url_ends_a_role(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "is_clustered", lambda _: True)
    for redis, broker in (("redis://a", "redis://a"), ("redis+sentinel://a/m", "redis://b")):
        settings = Settings.model_validate({"redis": {"url": redis}, "celery": {"broker_url": broker}})
        with pytest.raises(StoreRefuses, match="node of a Redis Cluster"):
            require_usable(settings.redis, settings.broker_url)


SECRETS = [
    (AuthenticationError("invalid username-password pair or user is disabled."), "refuses the user or the"),
    (AuthenticationError("WRONGPASS invalid username-password pair"), "refuses the user or the password"),
    (AuthenticationError("AUTH <password> called without any password configured"), "refuses the user"),
    (AuthenticationError("Authentication required."), "asks for a password"),
    (
        AuthenticationError(
            "HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH"
        ),
        "asks for a password",
    ),
    (ResponseError("DB index is out of range"), "does not have the database"),
]


@pytest.mark.parametrize(("error", "problem"), SECRETS)
def test_a_refused_password_or_database_is_no_server_that_is_away(error: RedisError, problem: str) -> None:
    shown = unavailable(URL, error)
    assert isinstance(shown, StoreRefuses)
    for text in (str(shown), in_words(error)):
        assert problem in text
    assert "cannot reach" not in str(shown)
    assert "Start" not in str(shown)
    assert ".." not in str(shown)


@pytest.mark.parametrize(
    ("user", "query", "problem"),
    [
        ("role:wrong@", "db=0", "refuses the user or the password"),
        ("", "db=99", "does not have the database"),
    ],
)
def test_whoever_uses_a_refused_password_or_database_reads_which(
    real_redis: Redis, user: str, query: str, problem: str
) -> None:
    url = f"unix://{user}{real_redis.connection_pool.connection_kwargs['path']}?{query}"
    settings = Settings.model_validate({"redis": {"url": url}})
    deployment = Deployment.open(settings)
    asks: list[Callable[[], object]] = [
        lambda: require_usable(settings.redis, settings.broker_url),
        deployment.require,
        lambda: deployment.patience().ask(deployment.redis.ping),
    ]
    for ask in asks:
        with pytest.raises(StoreRefuses, match=problem) as raised:
            ask()
        assert "wrong" not in str(raised.value).replace("***", "")
    deployment.close()


def test_a_server_has_all_commands_that_are_asked_for_and_says_which_it_lacks(real_redis: Redis) -> None:
    assert missing_commands(real_redis, (*COMMANDS, *OF_QUEUES)) == []
    assert missing_commands(real_redis, ("GET", "NOSUCH", "SET", "NEITHER")) == ["NOSUCH", "NEITHER"]


def test_every_command_of_a_script_is_asked_for() -> None:
    text = "".join(path.read_text() for path in Path(fairlane.__file__).parent.rglob("*.lua"))
    called = set(re.findall(r"redis\.p?call\('([A-Z]+)'", text))
    assert len(called) > 30
    assert called <= set(COMMANDS)


class Renamed:
    """A client of a server that has lost a command, or does not say which it has."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def execute_command(self, *_: str) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def test_a_renamed_command_is_named_before_a_role_starts() -> None:
    told = [None if name == "SCAN" else [name] for name in COMMANDS]
    missing = missing_right(Renamed(told), KEYS, broker=False)  # type: ignore[arg-type]
    assert missing is not None
    assert missing.problem == "this server has no SCAN"
    assert "rename-command" in missing.remedy


@pytest.mark.parametrize("answer", [ResponseError("unknown command 'COMMAND'"), [], None, b"OK"])
def test_a_server_that_does_not_say_what_it_has_is_believed_to_have_all(answer: Any) -> None:
    assert missing_commands(Renamed(answer), COMMANDS) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "said",
    [
        "unknown command 'SCAN', with args beginning with: '0' ",
        "unknown command `SCAN`, with args beginning with: `0`",
        "Command # 1 (SCAN 0) of pipeline caused error: unknown command 'SCAN', with args beginning with:",
        "ERR unknown command 'scan'",
    ],
)
def test_an_unknown_command_is_a_misfit_wherever_it_comes_up(said: str) -> None:
    found = misfit_of(ResponseError(said))
    assert found is not None
    assert found.problem == "this server has no SCAN"
