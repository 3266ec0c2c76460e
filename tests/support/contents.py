"""Reads all keys of a small Redis in three round trips."""

from __future__ import annotations

from typing import NamedTuple

from redis import Redis


class Content(NamedTuple):
    """A key's value as redis-py returns it, and whether the key has an expiry."""

    value: object
    expires: bool


def read_contents(redis: Redis) -> dict[str, Content]:
    """All keys and values; the result is equal as long as nothing has changed.

    Keys that expire meanwhile are left out.
    """
    keys = list(redis.scan_iter(count=10_000))
    pipeline = redis.pipeline(transaction=False)
    for key in keys:
        pipeline.type(key)
        pipeline.pttl(key)
    about = pipeline.execute()
    for key, kind in zip(keys, about[::2], strict=True):
        match kind:
            case b"hash":
                pipeline.hgetall(key)
            case b"zset":
                pipeline.zrange(key, 0, -1, withscores=True)
            case b"set":
                pipeline.smembers(key)
            case b"list":
                pipeline.lrange(key, 0, -1)
            case b"stream":
                pipeline.xrange(key)
            case _:
                pipeline.get(key)
    values = pipeline.execute()
    return {
        key.decode(): Content(value, ttl >= 0)
        for key, value, ttl in zip(keys, values, about[1::2], strict=True)
        if value or value == b""
    }
