"""Bounded caches: the most recently used values, by key, and reads that concurrent readers share."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Lru(Generic[K, V]):
    """Keeps at most ``most`` values and drops the least recently used one first.

    Reading or writing a key counts as use. It takes no lock: threads that share one bring their own.
    """

    def __init__(self, most: int) -> None:
        if most < 1:
            raise ValueError(f"a cache keeps at least one value, got {most}")
        self._most = most
        self._values: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: K) -> bool:
        return key in self._values

    def get(self, key: K) -> V | None:
        """The value of ``key``; ``None`` if the cache has none."""
        if key in self._values:
            self._values.move_to_end(key)
        return self._values.get(key)

    def put(self, key: K, value: V) -> None:
        """Store a value, in place of an earlier one; drops the least recently used value when full."""
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._most:
            self._values.popitem(last=False)

    def get_or_make(self, key: K, make: Callable[[], V]) -> V:
        """The value of ``key``, made and stored on its first use. What ``make`` raises is passed on."""
        if key not in self._values:
            self.put(key, make())
        self._values.move_to_end(key)
        return self._values[key]

    def drop(self, key: K) -> None:
        """Remove one key, if it is there."""
        self._values.pop(key, None)

    def drop_where(self, gone: Callable[[K], bool]) -> None:
        """Remove every key for which ``gone`` is true."""
        for key in [key for key in self._values if gone(key)]:
            del self._values[key]


class SharedReads(Generic[K, V]):
    """A bounded cache of reads: concurrent readers of a key share one read.

    A read that fails is not kept. A reader that stops waiting does not end the read for the others.
    """

    def __init__(self, most: int) -> None:
        self._reads: Lru[K, asyncio.Future[V]] = Lru(most)

    def __len__(self) -> int:
        return len(self._reads)

    async def get(self, key: K, read: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """The value of ``key``; ``read`` is called on its first use. What it raises is passed on."""
        reading = self._reads.get_or_make(key, lambda: self._begin(key, read))
        return reading.result() if reading.done() else await asyncio.shield(reading)

    def drop_where(self, gone: Callable[[K], bool]) -> None:
        """Forget every key for which ``gone`` is true."""
        self._reads.drop_where(gone)

    def _begin(self, key: K, read: Callable[[], Coroutine[Any, Any, V]]) -> asyncio.Future[V]:
        reading = asyncio.ensure_future(read())
        reading.add_done_callback(lambda ended: self._drop_failed(key, ended))
        return reading

    def _drop_failed(self, key: K, ended: asyncio.Future[V]) -> None:
        failed = ended.cancelled() or ended.exception() is not None
        if failed and self._reads.get(key) is ended:
            self._reads.drop(key)
