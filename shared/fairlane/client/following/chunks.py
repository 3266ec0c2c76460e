"""Streamed output while it is being written: what workers publish as long as somebody listens."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import NamedTuple

from redis.client import PubSub

from fairlane.client.deployment import Deployment
from fairlane.core.lru import Lru
from fairlane.model.run import RunRef

LISTEN_S = 0.5
LAST_LISTEN_S = 0.05
"""How long a message that was published before the run ended may still be on its way."""

ITEMS_KEPT = 100_000
"""Items whose attempts are remembered, so that a worker's death voids what its attempt had streamed."""


class Chunk(NamedTuple):
    """A piece of an item's output, streamed by its ``attempt``: 1 for the first, and more for each after it.

    If ``void`` is true, the attempt failed, or another one of the item has begun. Then ``text`` is empty, and
    no piece of that attempt is part of the output.
    """

    item: int
    text: str
    attempt: int
    void: bool = False


def listen(deployment: Deployment, ref: RunRef, steps: int, over: Callable[[], bool]) -> Iterator[Chunk]:
    """Subscribes at once; yields chunks until ``over``, a question to Redis, is true."""
    with deployment.answering():
        channel: PubSub = deployment.redis.pubsub(ignore_subscribe_messages=True)
        channel.subscribe(deployment.keys.chunks(ref))
        channel.get_message(
            timeout=LISTEN_S
        )  # the subscription's own confirmation: from here nothing is missed
    return _pieces(deployment, channel, steps, over)


def _pieces(deployment: Deployment, channel: PubSub, steps: int, over: Callable[[], bool]) -> Iterator[Chunk]:
    patience, attempts, ended = deployment.patience(), _Attempts(), False
    try:
        while True:
            wait_s = LAST_LISTEN_S if ended else LISTEN_S
            message = patience.ask(lambda: (channel.get_message(timeout=wait_s),))  # noqa: B023 - called at once
            if message and message[0]:
                yield from attempts.current(_piece(message[0], steps))
            elif message is None:
                deployment.waiter.wait(LISTEN_S)
            elif ended:
                return
            else:
                ended = bool(patience.ask(over))
    finally:
        channel.close()


class _Attempts:
    """The attempt of each item that streamed last, and whether it is void."""

    def __init__(self) -> None:
        self._last: Lru[int, tuple[int, bool]] = Lru(ITEMS_KEPT)

    def current(self, chunk: Chunk | None) -> Iterator[Chunk]:
        """The chunk, after the void of an earlier attempt; nothing if its own attempt is void."""
        if chunk is None:
            return
        attempt, void = self._last.get(chunk.item) or (0, True)
        if chunk.attempt < attempt or (chunk.attempt == attempt and void):
            return
        if chunk.attempt > attempt and not void:
            yield Chunk(chunk.item, "", attempt, void=True)
        self._last.put(chunk.item, (chunk.attempt, chunk.void))
        yield chunk


def _piece(message: dict[str, object], steps: int) -> Chunk | None:
    """A piece of a task's output; anything else on the channel is passed over."""
    try:
        data = json.loads(message["data"])  # type: ignore[arg-type]
        item, step = divmod(int(data["job"]), steps)
        void = data.get("void") is True
        chunk = Chunk(item, "" if void else str(data["text"]), int(data["number"]), void)
    except (AttributeError, ValueError, TypeError, KeyError):
        return None
    return chunk if step == 0 else None
