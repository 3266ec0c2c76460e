"""Streamed output while the provider writes it: workers publish it while a client subscribes."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from redis.client import PubSub

from fairlane.client.deployment import Deployment, Wait
from fairlane.core.json_answers import json_or
from fairlane.core.lru import Lru
from fairlane.model.run import RunRef

LISTEN_S = 0.5
LAST_LISTEN_S = 0.05
"""Seconds that a message published before the run's end may take."""

ITEMS_KEPT = 100_000
"""Items whose last attempt is remembered: the death of its worker voids what that had streamed."""


class Chunk(NamedTuple):
    """A piece of an item's output, streamed by its ``attempt``: 1 for the first, and more for each after it.

    If ``void`` is true, the attempt failed, or another one of the item has begun. Then ``text`` is empty, and
    no piece of that attempt is part of the output.
    """

    item: int
    text: str
    attempt: int
    void: bool = False


class ChunkSubscription(Iterator[Chunk | Wait]):
    """Chunks of a run until ``over`` returns true, which asks Redis. `open` or the first step subscribes.

    Each step listens for half a second at most. An error or an interrupt does not end the subscription.
    """

    def __init__(self, deployment: Deployment, ref: RunRef, steps: int, over: Callable[[], bool]) -> None:
        self._deployment, self._ref, self._steps, self._over = deployment, ref, steps, over
        self._patience = deployment.patience()
        self._attempts: Lru[int, tuple[int, bool]] = Lru(ITEMS_KEPT)
        self._received: deque[Chunk] = deque()
        self._channel: PubSub | None = None
        self._run_ended = self._closed = False

    def open(self) -> PubSub:
        """Subscribe, unless it has. Raises `StoreUnavailable`."""
        if self._channel is None:
            with self._deployment.answering():
                channel: PubSub = self._deployment.redis.pubsub(ignore_subscribe_messages=True)
                channel.subscribe(self._deployment.keys.chunks(self._ref))
                # the subscription's own confirmation: from here nothing is missed
                channel.get_message(timeout=LISTEN_S)
            self._channel = channel
        return self._channel

    def __next__(self) -> Chunk | Wait:
        """The next chunk, or a pause of 0 s where none came."""
        if self._received:
            return self._received.popleft()
        if self._closed:
            raise StopIteration
        channel, wait_s = self.open(), LAST_LISTEN_S if self._run_ended else LISTEN_S
        message = self._patience.ask(lambda: (channel.get_message(timeout=wait_s),))
        if message is None:
            return Wait(LISTEN_S)
        if message[0]:
            self._received.extend(self._current(_piece(message[0], self._steps)))
        elif self._run_ended:
            self.close()
        else:
            self._run_ended = bool(self._patience.ask(self._over))
        return Wait(0)

    def close(self) -> None:
        """End the subscription; chunks that were received are still yielded."""
        self._closed = True
        if self._channel is not None:
            self._channel.close()

    def _current(self, chunk: Chunk | None) -> Iterator[Chunk]:
        """The chunk, after one that voids an earlier attempt; nothing if its own attempt is void."""
        if chunk is None:
            return
        attempt, void = self._attempts.get(chunk.item) or (0, True)
        if chunk.attempt < attempt or (chunk.attempt == attempt and void):
            return
        if chunk.attempt > attempt and not void:
            yield Chunk(chunk.item, "", attempt, void=True)
        self._attempts.put(chunk.item, (chunk.attempt, chunk.void))
        yield chunk


def _piece(message: dict[str, object], steps: int) -> Chunk | None:
    """A piece of a task's output; ``None`` for any other message."""
    try:
        data = json_or(message["data"])  # type: ignore[arg-type]
        item, step = divmod(int(data["job"]), steps)
        void = data.get("void") is True
        chunk = Chunk(item, "" if void else str(data["text"]), int(data["number"]), void)
    except (AttributeError, ValueError, TypeError, KeyError):
        return None
    return chunk if step == 0 else None
