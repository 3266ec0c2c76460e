"""Sends several attempts of a lane in one message, which costs broker and worker as much as one attempt.

The message is that of the first attempt, and a header names the others. A worker unpacks it into messages of
one attempt each, so Celery, its events and its tools see every attempt as a task.
"""

import json
from collections.abc import Sequence
from typing import Any

from kombu.message import Message

from fairlane.model.job import Attempt

HEADER = "fairlane_more"
READS_BUNDLES = 2  # the least `WorkerInfo.messages` of workers that unpack bundles
MOST = 8  # attempts a message: more save little, and a worker may exceed its slots by all but one of them


class AttemptBody(bytes):
    """The body of an unpacked message, with the attempt and the arguments that it names: nobody parses it."""

    attempt: Attempt
    arguments: list[Any]


def header_of(more: Sequence[Attempt]) -> dict[str, Any]:
    """The header that names a message's attempts after the first; empty if there are none."""
    return {HEADER: [attempt.to_message() for attempt in more]} if more else {}


def shown(attempt: Attempt) -> str:
    """An attempt's arguments for lists of tasks."""
    names = f"run={attempt.run} job={attempt.job} attempt={attempt.number}"
    return f"{names} team={attempt.team} lane={attempt.lane}"


def unbundled(message: Message) -> list[Message]:
    """The messages of a bundle's attempts, on a virtual transport: itself first, without the header. Each
    counts towards the channel's prefetch limit and has its own acknowledgement. Raises `KeyError`,
    `TypeError` or `ValueError`, before any change, for a header that does not name attempts.
    """
    if HEADER not in message.headers:
        return [message]
    more = [_body_of(named) for named in message.headers.pop(HEADER)]
    return [message, *(_message_of(body, message, place) for place, body in enumerate(more, 1))]


def _body_of(named: Any) -> AttemptBody:
    arguments: list[Any] = [[], named, {}]
    body = AttemptBody(json.dumps(arguments).encode())
    body.attempt, body.arguments = Attempt.from_message(named), arguments
    return body


def _message_of(body: AttemptBody, first: Message, place: int) -> Message:
    attempt = body.attempt
    channel: Any = first.channel
    tag = f"{first.delivery_tag}.{place}"
    names = {"id": attempt.id, "root_id": attempt.id, "kwargsrepr": shown(attempt)}
    message = type(first)(
        {
            "body": body,
            "content-type": first.content_type,
            "content-encoding": first.content_encoding,
            "headers": first.headers | names,
            "properties": first.properties
            | {"body_encoding": None, "correlation_id": attempt.id, "delivery_tag": tag},
        },
        channel=channel,
    )
    message._decoded_cache = body.arguments  # what kombu would parse for Celery
    channel.qos.append(message, tag)
    return message
