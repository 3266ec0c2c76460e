"""Publishes pieces of streamed output while somebody listens, and costs next to nothing otherwise."""

from __future__ import annotations

import json

from fairlane.clock import Clock
from fairlane.job import Attempt
from fairlane.store.connect import RedisClient
from fairlane.store.keys import Keys, RunRef
from fairlane_workers.batcher import Batcher
from fairlane_workers.providers.contract import OnChunk

LOOK_AGAIN_MS = 1000
RUNS_KNOWN = 1024


class Chunks:
    """Asks at most once a second a run whether anybody has subscribed to it."""

    def __init__(self, redis: RedisClient, batcher: Batcher, keys: Keys, clock: Clock) -> None:
        self._redis, self._batcher, self._keys, self._clock = redis, batcher, keys, clock
        self._heard: dict[RunRef, tuple[int, bool]] = {}

    async def listener(self, attempt: Attempt) -> OnChunk | None:
        """What to call with each piece of an attempt's output, ``None`` while nobody listens."""
        ref = RunRef(attempt.team, attempt.run)
        if not await self._wanted(ref):
            return None
        channel = self._keys.chunks(ref)

        async def publish(text: str) -> None:
            piece = json.dumps({"job": attempt.job, "number": attempt.number, "text": text})
            await self._batcher.send(("PUBLISH", channel, piece))

        return publish

    async def _wanted(self, ref: RunRef) -> bool:
        now = self._clock.monotonic_ms()
        looked_ms, wanted = self._heard.get(ref, (-LOOK_AGAIN_MS, False))
        if now - looked_ms >= LOOK_AGAIN_MS:
            if len(self._heard) >= RUNS_KNOWN:
                self._heard.clear()
            self._heard[ref] = (now, wanted)
            answer = await self._batcher.send(("PUBSUB NUMSUB", self._keys.chunks(ref)))
            count = answer[0][1] if isinstance(answer[0], tuple | list) else answer[1]
            wanted = int(count) > 0
            self._heard[ref] = (now, wanted)
        return wanted
