"""Says why a server that answers cannot serve: it refuses a password, a database or a right, or is a cluster.

Waiting does not help, so a role ends with this message before it starts.
"""

import re
from collections.abc import Sequence

from redis.exceptions import (
    AuthenticationError,
    ClusterCrossSlotError,
    MovedError,
    NoPermissionError,
    ResponseError,
)

from fairlane.store.connection.server_states import OF_PIPELINE, Refusal
from fairlane.store.keys import Keys
from fairlane.store.redis_client import RedisClient

CLUSTERED = Refusal(
    "this server is a node of a Redis Cluster",
    "Write redis+cluster://HOST:PORT in redis.url, and name one Redis, Sentinels or RabbitMQ in "
    "celery.broker_url",
)

NO_DATABASE = Refusal(
    "this server does not have the database that the URL names",
    "Name one that it has, as in redis://HOST:PORT/0, or raise databases in the server's settings",
)

_NO_PASSWORD = Refusal(
    "this server asks for a password and the URL has none",
    "Set it in redis.url (the broker's in celery.broker_url): redis://:PASSWORD@HOST:PORT",
)

_WRONG_PASSWORD = Refusal(
    "this server refuses the user or the password of the URL",
    "Correct them in redis.url (the broker's in celery.broker_url): redis://USER:PASSWORD@HOST:PORT",
)

# Replies of Redis and Valkey to SELECT.
_DATABASE = re.compile(r"DB index is out of range|invalid DB index", re.IGNORECASE)

# Their replies to a command, and to HELLO, before a password.
_UNAUTHENTICATED = re.compile(
    r"authentication required|must be called with the client already", re.IGNORECASE
)

# redis-py has no error class for a script that lacks a right.
_DENIED_IN_SCRIPT = re.compile(
    r"the user executing the script can't|acl failure in script|-NOPERM", re.IGNORECASE
)

# The script's digest and line at the end of an error of Redis.
_PLACE = re.compile(r" script: (\w+, )?on @?\w+:\d+\.?$")

# The first that is found in the error counts: a denied command may be called PUBSUB or KEYS.
_RULES = ((r"run th[ei]", "a command", "+@all"), ("channel", "channels", "&*"), ("key", "keys", "~*"))

# Names like those of Celery's queues, bindings and channels, which do not exist.
_OF_BROKER = ("fairlane.lane.", "_kombu.nothing")
_CHANNELS_OF_BROKER = ("/0.nothing",)


_NEEDED = (
    "BITCOUNT DEL EVAL EVALSHA EXEC EXISTS EXPIRE GET GETBIT GETRANGE HDEL HEXISTS HGET HGETALL HINCRBY "
    "HINCRBYFLOAT HKEYS HLEN HMGET HSET HSETNX HSTRLEN HVALS LINDEX LLEN LPOP LRANGE LREM LTRIM MGET "
    "MULTI PERSIST PEXPIRE PING PUBLISH RPUSH SADD SCAN SCARD SCRIPT SET SETBIT SISMEMBER SMEMBERS SPOP "
    "SREM SSCAN STRLEN SUBSCRIBE TIME TTL TYPE UNLINK XADD XRANGE XREAD XREVRANGE ZADD ZCARD ZRANGE "
    "ZRANGEBYSCORE ZRANK ZREM ZREVRANGE ZSCORE"
)
COMMANDS = tuple(_NEEDED.split())
"""Commands that scheduler, workers, clients and their scripts need. A proxy may lack some of them, and
``rename-command`` removes them.
"""

OF_QUEUES = ("BRPOP", "LPUSH", "WATCH", "ZREVRANGEBYSCORE")
"""Commands that Celery's queues on Redis need besides."""

# Errors of Redis, Valkey and proxies for a command that they do not have.
_UNKNOWN = re.compile(r"unknown command\W+(\w+)", re.IGNORECASE)


def lacking(commands: Sequence[str]) -> Refusal:
    """The refusal of a server that does not have these commands."""
    remedy = "Take its rename-command lines away, or name a Redis that is behind no proxy, in redis.url"
    return Refusal(f"this server has no {', '.join(commands)}", remedy)


def misfit_of(error: BaseException) -> Refusal | None:
    """Why the server cannot serve, if an error says so; ``None`` for any other error."""
    if isinstance(error, (MovedError, ClusterCrossSlotError)):
        return CLUSTERED
    if isinstance(error, AuthenticationError):
        return _NO_PASSWORD if _UNAUTHENTICATED.search(str(error)) else _WRONG_PASSWORD
    if isinstance(error, ResponseError) and _DATABASE.search(str(error)):
        return NO_DATABASE
    if isinstance(error, ResponseError) and (unknown := _UNKNOWN.search(str(error))):
        return lacking([unknown[1].upper()])
    said = _PLACE.sub("", str(error).rpartition(OF_PIPELINE)[2]).rstrip(".")
    denied = isinstance(error, ResponseError) and _DENIED_IN_SCRIPT.search(said)
    if not denied and not isinstance(error, NoPermissionError):
        return None
    for pattern, what, rule in _RULES:
        if re.search(pattern, said):
            remedy = f"The user of scheduler, workers and operators needs {rule}: ACL SETUSER NAME {rule}"
            return Refusal(f"Redis denies this user {what} ({said})", remedy)
    return Refusal(f"Redis denies this user a command ({said})", "It needs the rules ~* &* +@all")


def is_clustered(redis: RedisClient) -> bool:
    """Whether the server reports that it is a node of a cluster. Raises `RedisError`."""
    try:
        return bool(int(redis.info("cluster").get("cluster_enabled", 0)))
    except ResponseError as error:
        if misfit_of(error) is NO_DATABASE:
            raise
        return False  # this user may not ask, or an imitation cannot answer


def missing_commands(redis: RedisClient, commands: Sequence[str]) -> list[str]:
    """Those of ``commands`` that the server lacks; none if it does not report that."""
    try:
        told = redis.execute_command("COMMAND INFO", *commands)
    except ResponseError:
        return []  # this user may not ask, or an imitation cannot answer
    if not isinstance(told, list) or len(told) != len(commands):
        return []
    return [name for name, known in zip(commands, told, strict=True) if not known]


def missing_right(redis: RedisClient, keys: Keys, *, broker: bool) -> Refusal | None:
    """The first right that this user lacks for a role, as far as it can be tested without an effect.

    Also the commands that the server lacks. ``broker``: it has Celery's queues, too.
    """
    if missing := missing_commands(redis, (*COMMANDS, *(OF_QUEUES if broker else ()))):
        return lacking(missing)
    names = (f"{keys.prefix}nothing", *(_OF_BROKER if broker else ()))
    channels = (keys.wake, *(_CHANNELS_OF_BROKER if broker else ()))
    try:
        redis.unlink(*names)
        redis.eval("return redis.call('PUBLISH', ARGV[1], '')", 1, keys.leader, keys.wake)
        with redis.pubsub(ignore_subscribe_messages=True) as heard:
            heard.subscribe(*channels)
            heard.parse_response()
    except ResponseError as error:
        return misfit_of(error)  # for example, a replica refuses for another reason
    return None
