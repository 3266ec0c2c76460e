"""Streamed output while it is being written: what workers publish as long as somebody listens."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from redis.client import PubSub

from fairlane.link import Link
from fairlane.store.keys import RunRef

LISTEN_S = 0.5
LAST_LISTEN_S = 0.05
"""How long a message that was published before the run ended may still be on its way."""


def listen(link: Link, ref: RunRef, steps: int, over: Callable[[], bool]) -> Iterator[tuple[int, str]]:
    """Subscribes at once; yields ``(item, text)`` until ``over``, a question to Redis, is true."""
    with link.answering():
        channel: PubSub = link.redis.pubsub(ignore_subscribe_messages=True)
        channel.subscribe(link.keys.chunks(ref))
        channel.get_message(
            timeout=LISTEN_S
        )  # the subscription's own confirmation: from here nothing is missed
    return _pieces(link, channel, steps, over)


def _pieces(link: Link, channel: PubSub, steps: int, over: Callable[[], bool]) -> Iterator[tuple[int, str]]:
    patience, ended = link.patience(), False
    try:
        while True:
            wait_s = LAST_LISTEN_S if ended else LISTEN_S
            message = patience.ask(lambda: (channel.get_message(timeout=wait_s),))  # noqa: B023 - called at once
            piece = _piece(message[0], steps) if message and message[0] else None
            if piece is not None:
                yield piece
            elif message is None:
                link.waiter.wait(LISTEN_S)
            elif message[0] is None:
                if ended:
                    return
                ended = bool(patience.ask(over))
    finally:
        channel.close()


def _piece(message: dict[str, object], steps: int) -> tuple[int, str] | None:
    """A piece of a task's output; anything else on the channel is passed over."""
    try:
        data = json.loads(message["data"])  # type: ignore[arg-type]
        item, step = divmod(int(data["job"]), steps)
        return (item, str(data["text"])) if step == 0 else None
    except (ValueError, TypeError, KeyError):
        return None
