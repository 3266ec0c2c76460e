"""An ASGI application that answers after as many milliseconds as the path says."""

from __future__ import annotations

import asyncio
import json
from typing import Any

ANSWER = json.dumps({"choices": [{"message": {"content": "x" * 500}}], "usage": {"total_tokens": 7}}).encode()

_connections: dict[str, set[tuple[str, int]]] = {}  # of each user agent


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """``/<milliseconds>``; ``/connections`` tells how many connections each user agent has had."""
    if scope["type"] == "lifespan":
        await _live(receive, send)
        return
    while (await receive()).get("more_body"):
        pass
    if scope["path"] == "/connections":
        body = json.dumps({agent: len(some) for agent, some in _connections.items()}).encode()
    else:
        body = ANSWER
        agent = dict(scope["headers"])[b"user-agent"].decode()
        _connections.setdefault(agent, set()).add(tuple(scope["client"]))
        if milliseconds := int(scope["path"].strip("/")):
            await _after(milliseconds / 1000)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _after(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    loop.call_later(seconds, over.set_result, None)
    await over


async def _live(receive: Any, send: Any) -> None:
    ended = False
    while not ended:
        message = await receive()
        ended = message["type"] == "lifespan.shutdown"
        await send({"type": f"{message['type']}.complete"})
