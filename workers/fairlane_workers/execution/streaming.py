"""Decides whether a call streams its answer: where somebody listens, or where it may take long."""

from __future__ import annotations

from collections import deque

from fairlane.config.connection import Connection
from fairlane.core.lru import Lru
from fairlane.model.job import Attempt
from fairlane_workers.execution.chunks import AttemptStream, Chunks

LONG_MS = 15_000
"""A connection that is silent for a minute may be cut on its way (nginx's ``proxy_read_timeout`` and AWS's
load balancers: 60 s). A call that took a quarter of that may take the whole the next time."""

CALLS_KEPT, MODELS_KEPT = 20, 1024


class Streaming:
    """Knows who listens, and how long the latest calls to each model took."""

    def __init__(self, chunks: Chunks) -> None:
        self._chunks = chunks
        self._took: Lru[str, deque[int]] = Lru(MODELS_KEPT)

    def note(self, model: str, took_ms: int) -> None:
        """A call to ``model`` has ended; ``took_ms`` since its request left."""
        self._took.get_or_make(model, lambda: deque(maxlen=CALLS_KEPT)).append(took_ms)

    async def of(self, attempt: Attempt, model: str, connection: Connection) -> AttemptStream | None:
        """What publishes the pieces of a call's answer; ``None`` if the call is not to stream."""
        if connection.stream is False:
            return None
        stream = await self._chunks.listener(attempt)
        wanted = connection.stream is True or stream.wanted or self._may_take_long(model)
        return stream if wanted else None

    def _may_take_long(self, model: str) -> bool:
        took = self._took.get(model)
        return not took or max(took) >= LONG_MS
