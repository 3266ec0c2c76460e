"""One call over HTTP, from rendered messages to an outcome, for every protocol alike."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing

import httpx
from pydantic import SecretStr

from fairlane.clock import Clock
from fairlane.job import InvalidResponse, NetworkFailure, Outcome, PermanentFailure, Success, TimedOut
from fairlane_workers.providers.answer import Answer, Unreadable, parse_object
from fairlane_workers.providers.classify import classify, classify_late_error
from fairlane_workers.providers.contract import OnChunk, Request
from fairlane_workers.providers.dialect import Dialect
from fairlane_workers.providers.retry_after import retry_after_ms
from fairlane_workers.providers.sse import SseParser
from fairlane_workers.providers.wording import bounded, scrubbed
from fairlane_workers.transport import Reply, Transport, TransportFault

ERROR_BODY_BYTES = 64 * 1024
DRAIN_S = 0.1


class HttpProvider:
    """A `Provider` over HTTP: a dialect says what to send and how to read, everything else happens here."""

    def __init__(
        self,
        name: str,
        dialect: Dialect,
        base_url: httpx.URL,
        api_key: SecretStr | None,
        transport: Transport,
        clock: Clock,
    ) -> None:
        key = api_key.get_secret_value() if api_key else None
        self._name = name
        self._dialect = dialect
        self._url = base_url.copy_with(path=base_url.path.rstrip("/") + dialect.path)
        self._headers = httpx.Headers(
            {
                "host": base_url.netloc.decode("ascii"),
                "user-agent": "fairlane",
                "content-type": "application/json",
                "accept": "application/json, text/event-stream",
                "accept-encoding": "identity",  # small answers: unpacking costs more than it saves
                **dialect.headers(key),
            }
        )
        # A query of the base URL may hold a key too, and exceptions quote URLs.
        self._secrets = tuple(secret for secret in (key, base_url.query.decode("ascii")) if secret)
        self._transport = transport
        self._clock = clock

    def __repr__(self) -> str:
        return f"HttpProvider({self._name!r}, {self._dialect.protocol!r})"

    async def call(self, request: Request, on_chunk: OnChunk | None = None) -> Outcome:
        """See `Provider.call`."""
        content = json.dumps(self._dialect.body(request), separators=(",", ":")).encode()
        answer = Answer()
        reply: Reply | None = None
        deadline = asyncio.timeout(request.timeout_s)
        try:
            async with deadline:
                reply = await self._transport.post(self._url, self._headers, content)
                try:
                    if not 200 <= reply.status < 300:
                        return await self._refused(reply)
                    if request.stream and _is_event_stream(reply):
                        await self._read_stream(reply, request, answer, on_chunk, deadline)
                    else:
                        await self._read_whole(reply, request, answer, on_chunk)
                finally:
                    await reply.aclose()
        except TransportFault as fault:
            if reply is None:
                return NetworkFailure(self._fit(str(fault)))
            if not answer.complete:
                return self._unusable(reply, f"the answer broke off: {fault}")
        except Unreadable as problem:
            if reply is not None and not answer.complete:
                return self._unusable(reply, str(problem))
        except TimeoutError:
            if not deadline.expired():
                raise  # on_chunk's own
            if not answer.complete:
                seen = "no answer" if reply is None else "the answer was not complete"
                return TimedOut(f"{seen} within {request.timeout_s:g} s")
        return self._conclude(reply, answer)

    async def aclose(self) -> None:
        """See `Provider.aclose`."""
        await self._transport.aclose()
