"""One call over HTTP, from rendered messages to an outcome, for every protocol alike."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing

import httpx
from pydantic import SecretStr

from fairlane.clock import Clock
from fairlane.hints import Hints
from fairlane.job import InvalidResponse, NetworkFailure, Outcome, PermanentFailure, Success, TimedOut
from fairlane.redaction import spellings
from fairlane_workers.providers.answer import Answer, UnreadableError, parse_object
from fairlane_workers.providers.classify import classify, classify_late_error
from fairlane_workers.providers.contract import OnChunk, Request
from fairlane_workers.providers.dialect import Dialect
from fairlane_workers.providers.limits import dialect_of, read_limits
from fairlane_workers.providers.retry_after import retry_after_ms
from fairlane_workers.providers.sse import ServerSentEvent, SseParser
from fairlane_workers.providers.wording import bounded, scrubbed
from fairlane_workers.transport import Reply, Transport, TransportError

ERROR_BODY_BYTES = 64 * 1024
DRAIN_S = 0.25


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
        limits: str | None = None,
    ) -> None:
        """``limits`` names the dialect that limits are told in (`limits.DIALECTS`); else the host does."""
        key = api_key.get_secret_value() if api_key else None
        self._name = name
        self._dialect = dialect
        self._limits = limits or dialect_of(base_url.host)
        self._url = base_url.copy_with(path=base_url.path.rstrip("/") + dialect.path)
        self._headers = httpx.Headers(
            {
                "host": base_url.netloc.decode("ascii"),
                "user-agent": "fairlane",
                "content-type": "application/json",
                "accept": "application/json, text/event-stream",
                "accept-encoding": "identity",  # answers are small: unpacking costs more than it saves
                **dialect.headers(key),
            }
        )
        # The query of a base URL may hold a key too, and exceptions quote URLs.
        held = (secret for secret in (key, base_url.query.decode("ascii")) if secret)
        self._secrets = tuple(spelling for secret in held for spelling in spellings(secret))
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
        except TransportError as fault:
            return NetworkFailure(self._fit(str(fault)))
        except TimeoutError:
            if not deadline.expired():
                raise  # on_chunk's own
            if reply is None or not (answer.complete or answer.error):
                seen = "no answer" if reply is None else "the answer was not complete"
                return TimedOut(f"{seen} within {request.timeout_s:g} s", hints=self._hints(reply))
        return self._conclude(reply, answer)

    async def aclose(self) -> None:
        """See `Provider.aclose`."""
        await self._transport.aclose()

    async def _refused(self, reply: Reply) -> Outcome:
        body, _ = await _read(reply, ERROR_BODY_BYTES)
        return classify(
            self._dialect.protocol,
            reply.status,
            _plain(reply.headers),
            body,
            now_ms=self._clock.now_ms(),
            secrets=self._secrets,
            limits=self._limits,
        )

    async def _read_whole(
        self, reply: Reply, request: Request, answer: Answer, on_chunk: OnChunk | None
    ) -> None:
        body, answer.problem = await _read(reply, request.max_response_bytes)
        if answer.problem:
            return
        try:
            self._dialect.read(parse_object(body), answer)
        except UnreadableError as problem:
            answer.problem = str(problem)
            return
        if on_chunk and answer.text:
            await on_chunk(answer.text)

    async def _read_stream(
        self,
        reply: Reply,
        request: Request,
        answer: Answer,
        on_chunk: OnChunk | None,
        deadline: asyncio.Timeout,
    ) -> None:
        parser = SseParser()
        try:
            async with aclosing(reply.chunks(request.max_response_bytes)) as chunks:
                async for chunk in chunks:
                    if answer.ended:  # nothing more is meant for us, but a connection read to its end is kept
                        continue
                    await self._hear(parser.feed(chunk), answer, on_chunk)
                    if answer.error:
                        return
                    if answer.ended:
                        _hurry(deadline)
            await self._hear(parser.finish(), answer, on_chunk)
        except TransportError as fault:
            answer.problem = f"the answer could not be read to its end: {fault}"
        except UnreadableError as problem:
            answer.problem = str(problem)

    async def _hear(self, events: list[ServerSentEvent], answer: Answer, on_chunk: OnChunk | None) -> None:
        """Add what arrived together, and tell the listener once."""
        texts: list[str] = []
        for event in events:
            if answer.ended or answer.error:
                break
            texts.append(self._dialect.fold(event, answer))
        if on_chunk and (text := "".join(texts)):
            await on_chunk(text)

    def _conclude(self, reply: Reply, answer: Answer) -> Outcome:
        """The outcome of a 2xx answer, read as far as it went."""
        status, now_ms, headers = reply.status, self._clock.now_ms(), _plain(reply.headers)
        if answer.error:
            return classify_late_error(
                self._dialect.protocol,
                answer.error,
                headers,
                now_ms=now_ms,
                secrets=self._secrets,
                limits=self._limits,
            )
        wait_ms = retry_after_ms(headers, now_ms)
        hints = read_limits(self._limits, headers, now_ms)
        if not answer.complete:
            problem = answer.problem or "the stream ended before the answer did"
            return InvalidResponse(self._fit(problem), status, wait_ms, hints)
        if answer.refusal:
            return PermanentFailure(self._fit(answer.refusal), status, wait_ms, hints)
        if answer.text is None:
            problem = f"the answer holds no text (finish reason {answer.finish_reason})"
            return InvalidResponse(self._fit(problem), status, wait_ms, hints)
        return Success(answer.text, answer.usage, answer.finish_reason, status, wait_ms, hints)

    def _hints(self, reply: Reply | None) -> Hints | None:
        """What the headers told of the limits, where there were any."""
        if reply is None:
            return None
        return read_limits(self._limits, _plain(reply.headers), self._clock.now_ms())

    def _fit(self, text: str) -> str:
        return bounded(scrubbed(text, self._secrets))


def _plain(headers: httpx.Headers) -> dict[str, str]:
    """The headers by lower-case name: `httpx.Headers` walks all of them whenever one is asked for."""
    raw = headers.raw
    plain = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in raw}
    return plain if len(plain) == len(raw) else dict(headers.items())


def _is_event_stream(reply: Reply) -> bool:
    """Whether events come; some servers answer ``stream: true`` with one JSON document."""
    return not reply.headers.get("content-type", "").startswith("application/json")


async def _read(reply: Reply, max_bytes: int) -> tuple[bytes, str | None]:
    """The body as far as it can be had, and what broke it off if something did."""
    parts: list[bytes] = []
    try:
        async with aclosing(reply.chunks(max_bytes)) as chunks:
            async for chunk in chunks:
                parts.append(chunk)
    except TransportError as fault:
        return b"".join(parts), f"the answer could not be read to its end: {fault}"
    return b"".join(parts), None


def _hurry(deadline: asyncio.Timeout) -> None:
    """Leave the server a moment to close a stream whose end mark was read, and not the whole deadline."""
    soon = asyncio.get_running_loop().time() + DRAIN_S
    if (when := deadline.when()) is None or soon < when:
        deadline.reschedule(soon)
