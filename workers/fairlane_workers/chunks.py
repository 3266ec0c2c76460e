"""Publishes pieces of streamed output while somebody listens, and costs next to nothing otherwise."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from fairlane.clock import Clock
from fairlane.job import Attempt
from fairlane.store.connect import RedisClient
from fairlane.store.keys import Keys, RunRef
from fairlane_workers.batcher import Batcher
from fairlane_workers.providers.contract import OnChunk

LOOK_AGAIN_MS = 1000
RUNS_KNOWN = 1024


class Chunks:
    """One for all attempts of a worker. No call in flight waits for it, or for a Redis that is away."""

    def __init__(self, redis: RedisClient, batcher: Batcher, keys: Keys, clock: Clock) -> None:
        self._redis, self._batcher, self._keys, self._clock = redis, batcher, keys, clock
        self._audiences: dict[RunRef, _Audience] = {}

    async def listener(self, attempt: Attempt) -> OnChunk:
        """What to call with each piece of an attempt's output."""
        ref = RunRef(attempt.team, attempt.run)
        channel, audience = self._keys.chunks(ref), self._audience(ref)
        await asyncio.shield(audience.look())  # others wait for the same answer

        async def publish(text: str) -> None:
            audience.look()
            if audience.present:
                piece = json.dumps({"job": attempt.job, "number": attempt.number, "text": text})
                self._batcher.offer(("PUBLISH", channel, piece))

        return publish

    def _audience(self, ref: RunRef) -> _Audience:
        if ref not in self._audiences:
            if len(self._audiences) >= RUNS_KNOWN:
                self._audiences.clear()
            self._audiences[ref] = _Audience(lambda: self._count(self._keys.chunks(ref)), self._clock)
        return self._audiences[ref]

    async def _count(self, channel: str) -> int:
        answer = await self._batcher.send(("PUBSUB NUMSUB", channel))
        return int(answer[0][1] if isinstance(answer[0], tuple | list) else answer[1])


class _Audience:
    """Whether anybody listens to a run: asked at most once a second, by everyone together."""

    def __init__(self, count: Callable[[], Coroutine[Any, Any, int]], clock: Clock) -> None:
        self._count, self._clock = count, clock
        self._question: asyncio.Task[None] | None = None
        self._asked_ms = 0
        self.present = False

    def look(self) -> asyncio.Task[None]:
        """Ask, if it is time; `present` is up to date once the task is done."""
        now, question = self._clock.monotonic_ms(), self._question
        if question is None or (question.done() and now - self._asked_ms >= LOOK_AGAIN_MS):
            self._asked_ms = now
            question = self._question = asyncio.ensure_future(self._ask())
        return question

    async def _ask(self) -> None:
        with suppress(RedisError):
            self.present = await self._count() > 0
