"""Makes one call over HTTP, from rendered messages to an outcome, for every protocol."""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

import httpx

from fairlane.core.clock import Clock
from fairlane.core.lru import Lru
from fairlane.core.redaction import Secrets, is_key_name
from fairlane.export.finish_reasons import Ending, ending_of
from fairlane.model.outcome import (
    Aborted,
    AccessDenied,
    InvalidResponse,
    NetworkFailure,
    Outcome,
    PermanentFailure,
    Success,
    TimedOut,
)
from fairlane_workers.providers.answers.answer import Answer, UnreadableError
from fairlane_workers.providers.answers.classify import Reading, classify, conclude
from fairlane_workers.providers.answers.pieces import MaskedPieces
from fairlane_workers.providers.answers.quotes import title_of
from fairlane_workers.providers.auth.authorizer import Authorizer, CredentialError
from fairlane_workers.providers.contract import Deadline, OnChunk, Request
from fairlane_workers.providers.dialect import Dialect, UnmappableError
from fairlane_workers.providers.errors.retry_after import provider_now_ms
from fairlane_workers.providers.errors.wording import bounded, scrubbed
from fairlane_workers.providers.http.polling import AnswerPoller, CallInProgress
from fairlane_workers.providers.http.reply_reader import ReplyReader, plain, read_body
from fairlane_workers.providers.limits.reading import read_limits
from fairlane_workers.providers.limits.table import dialect_of
from fairlane_workers.transport import SHORTAGE, Reply, Transport, TransportError, is_shortage
from fairlane_workers.transport.pause import Pause, sleep

ERROR_BODY_BYTES = 64 * 1024
CANCEL_S = 5.0  # the time to cancel a call at its provider
GONE = frozenset({404, 410})
"""Statuses of a provider that does not know a call (any more)."""

REPLACED = "the key has been replaced since the call left"

MOST_URLS = 256  # cached URLs, one for each model; a row's template may name any model
MOST_MODELS = MOST_URLS

_CUT = "the stream ended without a finish reason, which this model names: it has broken off"


class HttpProvider:
    """A `Provider` over HTTP: its dialect writes requests and reads replies; the rest is the same for all."""

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
        """``reading``: how errors are read; its ``late_statuses`` are replaced by the dialect's.

        ``headers`` are sent with every request; those of dialect and authorizer take precedence.
        ``embeddings`` is the dialect that embeds texts. ``pause`` waits between two polls for an answer.
        """
        self._name, self._dialect, self._embeddings = name, dialect, embeddings
        self._authorizer = authorizer or Authorizer()
        given = reading or Reading()
        self.limits = given.limits or dialect.limits or dialect_of(base_url.host)
        self._reading = replace(given, limits=self.limits, late_statuses=dialect.late_statuses)
        self._base_url = base_url
        self._urls: dict[str, httpx.URL] = {}
        self._headers = httpx.Headers(
            {
                "user-agent": "fairlane",
                "content-type": "application/json",
                "accept": "application/json, text/event-stream",
                "accept-encoding": "identity",  # answers are small: decompression costs more than it saves
                **(headers or {}),
                **dialect.headers(),
                **self._authorizer.fixed(),
                "host": base_url.netloc.decode("ascii"),
            }
        )
        # The query of a base URL may hold a key too, and exceptions quote URLs.
        self._held: Secrets | tuple[str, ...] | None = None
        self._known = Secrets()
        self._query = (base_url.query.decode("ascii"),) if base_url.query else ()
        keys = tuple(text for name, text in base_url.params.multi_items() if is_key_name(name))
        self._of_query = Secrets(keys, self._query)
        self._transport = transport
        self._clock = clock
        self._poller = AnswerPoller(lambda call, target: self._send("GET", target, of=call), clock, pause)
        self._endings = NamedEndings()
        self._dropping: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"HttpProvider({self._name!r}, {self._dialect.protocol!r})"

    async def call(self, request: Request, on_chunk: OnChunk | None = None) -> Outcome:
        """See `Provider.call`."""
        dialect = self._dialect if request.inputs is None else self._embeddings
        if dialect is None:
            return PermanentFailure(f"{self._dialect.protocol}: this protocol has no embeddings here")
        if on_chunk is None:
            return await self._called(CallInProgress(dialect, request, None))
        pieces = MaskedPieces(on_chunk, self._secrets)
        return await pieces.finish(await self._called(CallInProgress(dialect, request, pieces)))

    async def _called(self, call: CallInProgress) -> Outcome:
        request = call.request
        deadline = Deadline(request.timeout_s)
        try:
            async with deadline:
                return await self._make(call, deadline)
        except asyncio.CancelledError:
            if request.withdrawn():
                self._drop(call)
            raise
        except UnmappableError as problem:
            return PermanentFailure(self._fit(str(problem)))
        except (CredentialError, TransportError) as problem:
            text = self._fit(str(problem))
            if is_shortage(problem):
                return Aborted(f"{SHORTAGE}{text}")
            if isinstance(problem, CredentialError):
                return AccessDenied(text, 401, "auth")
            return NetworkFailure(text)
        except RuntimeError as problem:  # without a thread no key can be read
            if not is_shortage(problem):
                raise
            return Aborted(f"{SHORTAGE}{problem}")
        except TimeoutError:
            if not deadline.expired():
                raise  # on_chunk's own
            if call.reply is None or not (call.answer.complete or call.answer.error):
                self._drop(call)
                headers = plain(call.reply.headers) if call.reply else {}
                seen = "the answer was not complete" if call.reply else "no answer"
                return TimedOut(
                    f"{seen} within {request.timeout_s:g} s: a slow server needs a longer timeout",
                    hints=read_limits(self._reading.limits, headers, self._clock.now_ms()),
                    deadline_ms=round(request.timeout_s * 1000),
                )
            return self._conclude(call, call.reply)

    async def prepare(self) -> None:
        """See `Provider.prepare`."""
        self._transport.prepare()

    async def aclose(self) -> None:
        """See `Provider.aclose`."""
        await asyncio.gather(*self._dropping)
        await self._authorizer.aclose()
        await self._transport.aclose()

    async def _make(self, call: CallInProgress, deadline: Deadline) -> Outcome:
        """Resume a call that an earlier attempt began, or begin one, and wait for its answer."""
        if call.request.handle is not None and _names_a_call(call.dialect, call.request.handle):
            call.handle = call.request.handle
            reply = await self._poller.follow(call, deadline)
            if reply.status not in GONE:
                return await self._outcome(call, reply, deadline)
            await reply.aclose()
            call.handle, call.answer, call.delivered = None, Answer(), ""
        reply = await self._begin(call, deadline)
        if call.answer.pending is not None:
            call.handle = call.answer.pending.handle
            reply = await self._poller.follow(call, deadline)
            if reply.status in GONE:
                await reply.aclose()
                return InvalidResponse("the provider no longer knows the call", reply.status)
        return await self._outcome(call, reply, deadline)

    async def _outcome(self, call: CallInProgress, reply: Reply, deadline: Deadline) -> Outcome:
        if 200 <= reply.status < 300:
            self._authorizer.accept(call.mark)
            return self._conclude(call, reply)
        return await self._refused(call, reply, deadline)

    async def _begin(self, call: CallInProgress, deadline: Deadline) -> Reply:
        """Send the request, and read the reply unless it is an error."""
        dialect, request = call.dialect, call.request
        body = dialect.body(request)
        content = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        target = dialect.target(request)
        reply = call.reply = await self._send(
            dialect.method, target, content, partial(_leave, request, deadline), of=call
        )
        if not 200 <= reply.status < 300:
            return reply
        reader = ReplyReader(dialect, call.answer, call.pieces)
        try:
            await reader.read(reply, request.max_response_bytes, deadline, stream=request.stream)
        finally:
            await reply.aclose(keep=not (call.answer.error or call.answer.problem))
        return reply

    def _drop(self, call: CallInProgress) -> None:
        """Cancel the call at the provider, in a task of its own."""
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

    async def _send(
        self,
        method: str,
        target: str,
        content: bytes = b"",
        leave: Callable[[], object] | None = None,
        of: CallInProgress | None = None,
    ) -> Reply:
        url = self._urls.get(target) or self._remember(target, keep=method != "GET")
        headers = await self._authorizer.sign(method, url, self._headers, content)
        if of is not None:
            of.mark = self._authorizer.mark
        return await self._transport.send(method, url, headers, content, leave)

    def _remember(self, target: str, *, keep: bool) -> httpx.URL:
        """The URL of a target, cached: parsing one costs more than the rest of a request."""
        path, _, query = target.partition("?")
        whole = "&".join(part for part in (self._base_url.query.decode("ascii"), query) if part)
        raw = self._base_url.raw_path.partition(b"?")[0].decode("ascii").rstrip("/") + path
        url = self._base_url.copy_with(raw_path=f"{raw}?{whole}".encode() if whole else raw.encode())
        if keep and len(self._urls) < MOST_URLS:
            self._urls[target] = url
        return url

    async def _refused(self, call: CallInProgress, reply: Reply, deadline: Deadline) -> Outcome:
        try:
            body, _ = await read_body(reply, ERROR_BODY_BYTES)
        finally:
            await reply.aclose()
        headers, now_ms = plain(reply.headers), self._clock.now_ms()
        error, secrets = call.dialect.error(headers, body), self._secrets()
        outcome = classify(error, reply.status, headers, self._reading, now_ms=now_ms, secrets=secrets)
        if (
            isinstance(outcome, AccessDenied)
            and outcome.reason == "auth"
            and await self._replaced(call.mark, provider_now_ms(headers, now_ms), deadline)
        ):
            return Aborted(f"{REPLACED}: {outcome.message}", outcome.status)
        title = title_of(body) if error.message is None and reply.status >= 400 else None
        if title is None or isinstance(outcome, Success):
            return outcome
        return replace(outcome, message=self._fit(f"HTTP {reply.status}: {title}"))

    async def _replaced(self, mark: int, now_ms: int, deadline: Deadline) -> bool:
        """`Authorizer.replaced`, which may wait for a command: the server is not slow, it has answered."""
        deadline.reschedule(None)
        return await self._authorizer.replaced(mark, now_ms)

    def _conclude(self, call: CallInProgress, reply: Reply) -> Outcome:
        """The outcome of a 2xx answer, as far as it could be read."""
        answer = call.answer
        self._endings.check(call.request.model, answer)
        headers, now_ms = plain(reply.headers), self._clock.now_ms()
        return conclude(answer, reply.status, headers, self._reading, now_ms=now_ms, secrets=self._secrets())

    def _fit(self, text: str) -> str:
        return bounded(scrubbed(text, self._secrets()))

    def _secrets(self) -> Secrets:
        """The secrets as they are now; a fetched token changes while the provider lives."""
        held = self._authorizer.secrets
        if held != self._held:
            self._held = held
            ahead = held if isinstance(held, Secrets) else Secrets(held)
            self._known = Secrets.joined((ahead, self._of_query)) if self._query else ahead
        return self._known


def _names_a_call(dialect: Dialect, handle: str) -> bool:
    """Whether the handle is one of this protocol: the connection may have had another when the call began."""
    try:
        dialect.look(handle)
    except UnreadableError:
        return False
    return True


def _leave(request: Request, deadline: Deadline) -> None:
    """Let the request leave now, and start its time limit; connecting had the same time before."""
    request.leave()
    deadline.reschedule(asyncio.get_running_loop().time() + request.timeout_s)


class NamedEndings:
    """Models that name a finish reason for ordinary ends: a stream of theirs without one has broken off.

    A proxy whose server went away may still end the stream by its mark, as if the answer were whole. Servers
    that name no reason, or only unusual ones, end all of their streams so.
    """

    def __init__(self) -> None:
        self._models: Lru[str, bool] = Lru(MOST_MODELS)

    def check(self, model: str, answer: Answer) -> None:
        """Note the model's reason, or that the answer is incomplete for want of one."""
        if answer.unreasoned and answer.finish_reason is None and self._models.get(model):
            answer.ended, answer.problem = False, _CUT
        elif answer.finish_reason is not None and ending_of(answer.finish_reason) is Ending.STOP:
            self._models.put(model, True)
