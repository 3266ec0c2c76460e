"""A team's user on the server: which keys, commands and channels its client needs, and nothing else.

A rule has selectors, which Redis and Valkey have from 7.0 on. Reading, writing, announcing and listening each
have keys or channels of their own. A command passes if one selector allows all of it.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from redis.exceptions import NoPermissionError, ResponseError

from fairlane.core.errors import ConfigurationError
from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import TOKEN_AXES, Keys
from fairlane.store.write.lanes.lane_history import STEPS

LEAST_VERSION = (7, 0)
PASSWORD_BYTES = 32

CONNECTING = ("ping", "time", "multi", "exec", "client|setinfo")
"""Commands without a key. Anybody may use AUTH, HELLO, RESET and QUIT."""

SINCE = {"client|setinfo": (7, 2)}
"""Commands that older servers neither know nor accept in a rule; clients do without them there."""

READING = (
    *("exists", "get", "getbit", "getrange", "hexists", "hget", "hgetall", "hmget"),
    *("lindex", "llen", "lrange", "sismember", "smembers", "zrange", "zrevrange", "evalsha_ro"),
)
"""EVALSHA_RO runs what the scheduler has loaded, cannot write, and these rules apply to its reads."""

WRITING = ("expire", "hset", "rpush", "set", "unlink")


@dataclass(frozen=True, slots=True)
class Access:
    """A user to create: its name and its rules, without a password."""

    user: str
    rules: tuple[str, ...]


def team_access(keys: Keys, deployment: str, team: str, *, database: int = 0) -> Access:
    """Rules of a team's own user."""
    own = keys.inbox(team).removesuffix("inbox")
    return Access(
        user_name(deployment, team),
        (
            *_reader(keys, team, database),
            f"(~{own}* {_allow(WRITING)})",
            f"(&{keys.wake} +publish)",
        ),
    )


def dashboard_access(keys: Keys, deployment: str, team: str, *, database: int = 0) -> Access:
    """Rules of a user that reads a team's runs and changes nothing."""
    return Access(dashboard_name(deployment, team), _reader(keys, team, database))


def user_name(deployment: str, team: str) -> str:
    """The name of a team's user; neither part has a dot in it."""
    return f"fairlane.{deployment}.{team}"


def dashboard_name(deployment: str, team: str) -> str:
    """The name of the user that only reads."""
    return f"{user_name(deployment, team)}.dashboard"


def _reader(keys: Keys, team: str, database: int) -> tuple[str, ...]:
    own, runs = keys.inbox(team).removesuffix("inbox"), keys.runs(team).removesuffix("index")
    readings = (
        *(keys.headroom("*", axis) for axis in TOKEN_AXES),
        *(keys.history("*", s.name) for s in STEPS),
    )
    lanes = (keys.lane("*"), keys.limits("*"), *readings)
    seen = (f"{own}*", f"{runs}*", keys.catalog, keys.lanes, *lanes)
    patterns = " ".join(f"%R~{pattern}" for pattern in seen)
    connecting = (*CONNECTING, "select") if database else CONNECTING
    return (
        _allow(connecting),
        f"({patterns} {_allow(READING)})",
        f"(&{runs}*:chunks +subscribe)",
    )


def _allow(commands: Sequence[str]) -> str:
    return " ".join(f"+{command}" for command in commands)


def new_password() -> str:
    """A random secret in letters that a URL takes unchanged."""
    return secrets.token_urlsafe(PASSWORD_BYTES)


def set_user_command(access: Access, password: str) -> str:
    """The command for an operator, if Fairlane may not run it. It has only the password's hash."""
    words = ["ACL", "SETUSER", access.user, "reset", "on", f"#{_hash(password)}", *access.rules]
    # redis-cli takes a selector as one word only between quotes.
    return " ".join(f'"{word}"' if word.startswith("(") else word for word in words)


def url_of(url: str, user: str, password: str) -> str:
    """The URL by which a team's client connects."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{quote(user)}:{quote(password)}@{host}"))


def database_of(redis: RedisClient) -> int:
    """The number of the database that a client has selected."""
    return int(redis.connection_pool.connection_kwargs.get("db") or 0)


class Users:
    """Makes and changes users. The caller needs the right to."""

    def __init__(self, redis: RedisClient) -> None:
        self._redis = redis

    def require_selectors(self) -> None:
        """Raises `ConfigurationError` if the server is too old for selectors, or has no users."""
        version = self._version()
        if version < LEAST_VERSION:
            shown = ".".join(str(part) for part in version)
            problem = "users of teams need Redis or Valkey 7.0 or later, whose rules have selectors"
            remedy = "Upgrade the server, or give each team its own."
            raise ConfigurationError("redis.url", shown, problem, remedy)

    def suited(self, access: Access) -> Access:
        """These rules without commands that this server does not know."""
        version = self._version()
        unknown = {f"+{command}" for command, since in SINCE.items() if version < since}
        rules = (" ".join(word for word in rule.split() if word not in unknown) for rule in access.rules)
        return Access(access.user, tuple(rules))

    def make(self, access: Access, password: str) -> None:
        """Create the user, or replace it, with only this password."""
        self._do("SETUSER", access.user, "reset", "on", f"#{_hash(password)}", *self._words(access))

    def renew(self, access: Access) -> None:
        """Give an existing user these rules; its passwords stay."""
        cleared = ("resetkeys", "resetchannels", "nocommands", "clearselectors")
        self._do("SETUSER", access.user, *cleared, *self._words(access))

    def add_password(self, user: str, password: str) -> None:
        """Add a password; earlier ones stay valid."""
        self._do("SETUSER", user, f"#{_hash(password)}")

    def drop_older(self, user: str) -> int:
        """Delete all but a user's latest password, and end its connections. Returns how many passwords it
        deleted.

        A client that has the latest one connects again by itself.
        """
        older = self.passwords(user)[:-1]
        if older:
            self._do("SETUSER", user, *(f"!{digest}" for digest in older))
            self._redis.execute_command("CLIENT", "KILL", "USER", user)
        return len(older)

    def passwords(self, user: str) -> list[str]:
        """Hashes of a user's passwords, the latest last; empty if there is no such user."""
        found = self._do("GETUSER", user)
        return found["passwords"] if found else []

    def exists(self, user: str) -> bool:
        """Whether the server has a user of that name."""
        return self._do("GETUSER", user) is not None

    def remove(self, user: str) -> bool:
        """Delete the user and end its connections; false if there is none."""
        return bool(self._do("DELUSER", user))

    def is_open(self) -> bool:
        """Whether anybody may run any command: the default user needs no password."""
        found = self._do("GETUSER", "default")
        return bool(found) and {"on", "nopass"} <= set(found["flags"])

    def save(self) -> bool:
        """Write the users to the server's file; false if it has none, and loses them when it restarts."""
        try:
            self._redis.execute_command("ACL", "SAVE")
        except ResponseError:
            return False
        return True

    def _words(self, access: Access) -> list[str]:
        return [word for rule in self.suited(access).rules for word in _words(rule)]

    def _do(self, what: str, user: str, *words: str) -> Any:
        try:
            return self._redis.execute_command(f"ACL {what}", user, *words)
        except NoPermissionError as error:
            remedy = "Connect as an administrator, or use --print and give the rules to whoever is one."
            problem = f"this user may not change users: {error}"
            raise ConfigurationError("redis.url", "ACL", problem, remedy) from None
        except ResponseError as error:
            if not str(error).lower().startswith("unknown command"):
                raise
            remedy = "Use --print where the server is managed by others."
            raise ConfigurationError("redis.url", "ACL", "the server has no users", remedy) from None

    def _version(self) -> tuple[int, ...]:
        try:
            text = str(self._redis.info("server").get("redis_version", "0"))
        except ResponseError:
            return LEAST_VERSION  # unknown; SETUSER fails on an earlier one
        return tuple(int(part) for part in text.split(".")[:2] if part.isdecimal())


def _hash(password: str) -> str:
    return sha256(password.encode()).hexdigest()


def _words(rule: str) -> list[str]:
    return [rule] if rule.startswith("(") else rule.split()
