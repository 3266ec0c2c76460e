"""One call over HTTP, from rendered messages to an outcome, for every protocol alike."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import httpx

from fairlane.clock import Clock
from fairlane.hints import Hints
from fairlane.job import (
    AccessRefused,
    InvalidResponse,
    NetworkFailure,
    Outcome,
    PermanentFailure,
    TimedOut,
)
from fairlane.redaction import spellings
from fairlane_workers.pause import Pause, sleep
from fairlane_workers.providers.answer import Answer, UnreadableError
from fairlane_workers.providers.auth.authorizer import Authorizer, CredentialError
from fairlane_workers.providers.classify import Reading, classify
from fairlane_workers.providers.conclusion import conclude
from fairlane_workers.providers.contract import OnChunk, Request
from fairlane_workers.providers.dialect import Dialect, UnmappableError
from fairlane_workers.providers.limits import dialect_of, read_limits
from fairlane_workers.providers.lookout import Calling, Lookout
from fairlane_workers.providers.reply_reader import ReplyReader, is_event_stream, plain, read_body
from fairlane_workers.providers.wording import bounded, scrubbed
from fairlane_workers.transport import Reply, Transport, TransportError

ERROR_BODY_BYTES = 64 * 1024
CANCEL_S = 5.0
GONE = frozenset({404, 410})
"""What a provider answers that does not know a call (any more)."""

MOST_URLS = 256  # one a model; a row's template may name any


class HttpProvider:
    """A `Provider` over HTTP: a dialect says what to send and how to read, everything else happens here."""

    def __init__(
        self,
        name: str,
        dialect: Dialect,
        base_url: httpx.URL,
        transport: Transport,
        clock: Clock,
        *,
        authorizer: Authorizer | None = None,
        reading: Reading | None = None,
        headers: Mapping[str, str] | None = None,
        embeddings: Dialect | None = None,
        pause: Pause = sleep,
    ) -> None:
        """``reading``: how refusals are read, its ``late_statuses`` apart, which are the dialect's.

        ``headers`` are sent with every request besides those of dialect and authorizer, which go before them.
        ``embeddings`` is what texts are embedded with. ``pause`` waits between two looks for an answer.
        """
        self._name, self._dialect, self._embeddings = name, dialect, embeddings
        self._authorizer = authorizer or Authorizer()
        told = reading or Reading()
        self._reading = replace(
            told, limits=told.limits or dialect_of(base_url.host), late_statuses=dialect.late_statuses
        )
        self._base_url = base_url
        self._urls: dict[str, httpx.URL] = {}
        self._headers = httpx.Headers(
            {
                "user-agent": "fairlane",
                "content-type": "application/json",
                "accept": "application/json, text/event-stream",
                "accept-encoding": "identity",  # answers are small: unpacking costs more than it saves
                **(headers or {}),
                **dialect.headers(),
                **self._authorizer.fixed(),
                "host": base_url.netloc.decode("ascii"),
            }
        )
        # The query of a base URL may hold a key too, and exceptions quote URLs.
        self._held: tuple[str, ...] = ()
        self._spelled: tuple[str, ...] = ()
        self._query = (base_url.query.decode("ascii"),) if base_url.query else ()
        self._transport = transport
        self._clock = clock
        self._lookout = Lookout(lambda target: self._send("GET", target), clock, pause)
        self._dropping: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"HttpProvider({self._name!r}, {self._dialect.protocol!r})"

    async def call(self, request: Request, on_chunk: OnChunk | None = None) -> Outcome:
        """See `Provider.call`."""
        dialect = self._dialect if request.inputs is None else self._embeddings
        if dialect is None:
            return PermanentFailure(f"{self._dialect.protocol}: this protocol has no embeddings here")
        call, deadline = Calling(dialect, request, on_chunk), asyncio.timeout(request.timeout_s)
        try:
            async with deadline:
                return await self._make(call, deadline)
        except asyncio.CancelledError:
            if request.withdrawn():
                self._drop(call)
            raise
        except UnmappableError as problem:
            return PermanentFailure(self._fit(str(problem)))
        except CredentialError as problem:
            return AccessRefused(self._fit(str(problem)), 401, "auth")
        except TransportError as fault:
            return NetworkFailure(self._fit(str(fault)))
        except TimeoutError:
            if not deadline.expired():
                raise  # on_chunk's own
            if call.reply is None or not (call.answer.complete or call.answer.error):
                self._drop(call)
                seen = "no answer" if call.reply is None else "the answer was not complete"
                return TimedOut(f"{seen} within {request.timeout_s:g} s", hints=self._hints(call.reply))
            return self._conclude(call.reply, call.answer)

    async def aclose(self) -> None:
        """See `Provider.aclose`."""
        await asyncio.gather(*self._dropping)
        await self._authorizer.aclose()
        await self._transport.aclose()

    async def _make(self, call: Calling, deadline: asyncio.Timeout) -> Outcome:
        """Go on with a call that was begun before, or begin it, and wait for its answer."""
        if call.request.handle is not None and _names_a_call(call.dialect, call.request.handle):
            call.handle = call.request.handle
            reply = await self._lookout.follow(call)
            if reply.status not in GONE:
                return await self._outcome(call, reply)
            await reply.aclose()
            call.handle, call.answer, call.heard = None, Answer(), ""
        reply = await self._begin(call, deadline)
        if call.answer.pending is not None:
            call.handle = call.answer.pending.handle
            reply = await self._lookout.follow(call)
            if reply.status in GONE:
                await reply.aclose()
                return InvalidResponse("the provider no longer knows the call", reply.status)
        return await self._outcome(call, reply)

    async def _outcome(self, call: Calling, reply: Reply) -> Outcome:
        if 200 <= reply.status < 300:
            return self._conclude(reply, call.answer)
        return await self._refused(call.dialect, reply)

    async def _begin(self, call: Calling, deadline: asyncio.Timeout) -> Reply:
        """Send the request, and read what comes back unless it is a refusal."""
        dialect, request = call.dialect, call.request
        body = dialect.body(request)
        content = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        reply = call.reply = await self._send(dialect.method, dialect.target(request), content)
        if not 200 <= reply.status < 300:
            return reply
        reader = ReplyReader(dialect, call.answer, call.on_chunk)
        try:
            if request.stream and dialect.streams and is_event_stream(reply):
                await reader.read_stream(reply, request.max_response_bytes, deadline)
            else:
                await reader.read_whole(reply, request.max_response_bytes)
        finally:
            await reply.aclose()
        return reply

    def _drop(self, call: Calling) -> None:
        """Tell the provider, beside all else, that nobody waits for the call any more."""
        target = None if call.handle is None else call.dialect.cancel(call.handle)
        if target is not None:
            dropping = asyncio.create_task(self._cancel(target))
            self._dropping.add(dropping)
            dropping.add_done_callback(self._dropping.discard)

    async def _cancel(self, target: str) -> None:
        with suppress(TransportError, CredentialError, TimeoutError):
            async with asyncio.timeout(CANCEL_S):
                reply = await self._send("POST", target)
                await reply.aclose()

    async def _send(self, method: str, target: str, content: bytes = b"") -> Reply:
        url = self._urls.get(target) or self._remember(target, keep=method != "GET")
        headers = await self._authorizer.sign(method, url, self._headers, content)
        return await self._transport.send(method, url, headers, content)

    def _remember(self, target: str, *, keep: bool) -> httpx.URL:
        """The URL of a target: parsing one costs more than the rest of a request."""
        path, _, query = target.partition("?")
        whole = "&".join(part for part in (self._base_url.query.decode("ascii"), query) if part)
        raw = self._base_url.raw_path.partition(b"?")[0].decode("ascii").rstrip("/") + path
        url = self._base_url.copy_with(raw_path=f"{raw}?{whole}".encode() if whole else raw.encode())
        if keep and len(self._urls) < MOST_URLS:
            self._urls[target] = url
        return url

    async def _refused(self, dialect: Dialect, reply: Reply) -> Outcome:
        try:
            body, _ = await read_body(reply, ERROR_BODY_BYTES)
        finally:
            await reply.aclose()
        headers, now_ms = plain(reply.headers), self._clock.now_ms()
        error = dialect.error(headers, body)
        return classify(error, reply.status, headers, self._reading, now_ms=now_ms, secrets=self._secrets())

    def _conclude(self, reply: Reply, answer: Answer) -> Outcome:
        """The outcome of a 2xx answer, read as far as it went."""
        headers, now_ms = plain(reply.headers), self._clock.now_ms()
        return conclude(answer, reply.status, headers, self._reading, now_ms=now_ms, secrets=self._secrets())

    def _hints(self, reply: Reply | None) -> Hints | None:
        """What the headers told of the limits, where there were any."""
        if reply is None:
            return None
        return read_limits(self._reading.limits, plain(reply.headers), self._clock.now_ms())

    def _fit(self, text: str) -> str:
        return bounded(scrubbed(text, self._secrets()))

    def _secrets(self) -> tuple[str, ...]:
        """All spellings of what must not be told; a fetched token changes while the provider lives."""
        held = (*self._authorizer.secrets, *self._query)
        if held != self._held:
            self._held = held
            self._spelled = tuple(spelling for secret in held for spelling in spellings(secret))
        return self._spelled


def _names_a_call(dialect: Dialect, handle: str) -> bool:
    """Not that of another protocol, which the connection had when the call was begun."""
    try:
        dialect.look(handle)
    except UnreadableError:
        return False
    return True
