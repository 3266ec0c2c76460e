"""Calls providers through LiteLLM's SDK, for protocols that Fairlane lacks."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import aiohttp
import httpx
from pydantic import SecretStr

from fairlane.config.connections.connection import ANYWHERE, Connection
from fairlane.core.clock import Clock
from fairlane.core.errors import ConfigurationError, causes_of
from fairlane.core.redaction import Secrets
from fairlane.model.outcome import (
    Aborted,
    InvalidResponse,
    NetworkFailure,
    Outcome,
    PermanentFailure,
    TimedOut,
)
from fairlane_workers.providers.answers.answer import Answer, UnreadableError
from fairlane_workers.providers.answers.classify import Reading, classify, conclude
from fairlane_workers.providers.answers.pieces import MaskedPieces
from fairlane_workers.providers.contract import Deadline, OnChunk, Request
from fairlane_workers.providers.errors.error_body import ErrorBody
from fairlane_workers.providers.errors.throttling import texts_of
from fairlane_workers.providers.errors.wording import bounded, scrubbed
from fairlane_workers.providers.framing.event import StreamEvent
from fairlane_workers.providers.protocols.openai.chat import OpenAIChat
from fairlane_workers.transport import SHORTAGE, is_shortage

_OFFLINE = "LITELLM_LOCAL_MODEL_COST_MAP"
"""Without this, importing LiteLLM requests prices from a server."""
_BAD_URL = "http://127.0.0.1:0"
_users: set[LiteLLMProvider] = set()
"""Providers of this process that have prepared and are not closed."""


class LiteLLMProvider:
    """A `Provider` that calls ``litellm.acompletion`` without LiteLLM's retries. Models have LiteLLM's names.

    LiteLLM itself reads credentials of some providers from the worker's environment. Connections are
    LiteLLM's own: Fairlane bounds neither their number nor their use of a proxy.
    """

    def __init__(self, name: str, connection: Connection, api_key: SecretStr | None, clock: Clock) -> None:
        """Raises `ConfigurationError` if LiteLLM is not installed."""
        if find_spec("litellm") is None:
            field, remedy = f"connections.{name}.protocol", "pip install 'fairlane[litellm]' on the workers."
            raise ConfigurationError(field, "litellm", "LiteLLM is not installed", remedy)
        self._name, self._clock = name, clock
        self._reading = replace(Reading.of(connection, {}), late_statuses=OpenAIChat.late_statuses)
        self._key = api_key.get_secret_value() if api_key else None
        self._secrets = Secrets((self._key,) if self._key else ())
        self._fixed: dict[str, Any] = {"num_retries": 0, "max_retries": 0, "drop_params": False}
        if self._key:
            self._fixed["api_key"] = self._key
        if connection.base_url != ANYWHERE:
            self._fixed["api_base"] = connection.base_url
        if connection.headers:
            self._fixed["extra_headers"] = dict(connection.headers)
        self._chat = OpenAIChat()
        self._sdk: Any = None

    def __repr__(self) -> str:
        return f"LiteLLMProvider({self._name!r})"

    async def call(self, request: Request, on_chunk: OnChunk | None = None) -> Outcome:
        """See `Provider.call`."""
        if request.inputs is not None:
            return PermanentFailure("litellm: this protocol has no embeddings here")
        await self.prepare()
        if on_chunk is None:
            return await self._called(request, None)
        pieces = MaskedPieces(on_chunk, lambda: self._secrets)
        return await pieces.finish(await self._called(request, pieces))

    async def _called(self, request: Request, pieces: MaskedPieces | None) -> Outcome:
        sdk = self._sdk
        answer, deadline = Answer(), Deadline(request.timeout_s)
        headers: Mapping[str, str] = {}
        try:
            async with deadline:
                body = {**self._chat.body(request), **self._fixed, "timeout": request.timeout_s}
                request.leave()
                reply = await sdk.acompletion(**body)
                headers = texts_of(getattr(reply, "_response_headers", None))
                if request.stream:
                    await self._read_stream(reply, answer, pieces, request.max_response_bytes)
                else:
                    await self._read_whole(reply, answer, pieces)
        except TimeoutError:
            if not deadline.expired():
                raise  # on_chunk's own
            if not (answer.complete or answer.error):
                seen = f"no complete answer within {request.timeout_s:g} s"
                message = f"{seen}: a slow server needs a longer timeout"
                return TimedOut(message, deadline_ms=round(request.timeout_s * 1000))
        except UnreadableError as problem:
            answer.problem = str(problem)
        except Exception as error:
            if not _is_of_the_sdk(error):
                raise
            return self._failure(error, request)
        now_ms = self._clock.now_ms()
        return conclude(answer, 200, headers, self._reading, now_ms=now_ms, secrets=self._secrets)

    async def prepare(self) -> None:
        """See `Provider.prepare`: importing LiteLLM takes seconds."""
        self._sdk = self._sdk or await asyncio.to_thread(_imported)
        _users.add(self)

    async def aclose(self) -> None:
        """See `Provider.aclose`. LiteLLM shares its clients: the last provider that uses them closes them."""
        sdk, self._sdk = self._sdk, None
        if sdk is None:
            return
        _users.discard(self)
        if not _users:
            with suppress(Exception):
                await sdk.close_litellm_async_clients()
            sdk.in_memory_llm_clients_cache.flush_cache()  # closed clients would be used again

    async def _read_whole(self, reply: Any, answer: Answer, pieces: MaskedPieces | None) -> None:
        self._chat.read(reply.model_dump(), answer)
        if pieces and answer.text:
            await pieces.whole(answer.text)

    async def _read_stream(
        self, reply: AsyncIterator[Any], answer: Answer, pieces: MaskedPieces | None, most: int
    ) -> None:
        size = 0
        async for chunk in reply:
            data = json.dumps(chunk.model_dump(), default=str)
            size += len(data)
            if size > most:
                answer.too_large = f"larger than {most} bytes"
                return
            text = self._chat.fold(StreamEvent("message", data), answer)
            if pieces and text:
                await pieces(text)
        answer.ended = answer.finish_reason is not None

    def _failure(self, error: Exception, request: Request) -> Outcome:
        """The outcome of one of LiteLLM's exceptions, read from its causes."""
        causes = list(causes_of(error))
        message = bounded(scrubbed(str(error), self._secrets))
        if is_shortage(error):
            return Aborted(f"{SHORTAGE}{message}")
        if any(isinstance(cause, httpx.TimeoutException) for cause in causes):
            return TimedOut(message, deadline_ms=round(request.timeout_s * 1000))
        if any(isinstance(cause, json.JSONDecodeError) for cause in causes):
            return InvalidResponse(message)
        stated = (getattr(cause, "status_code", None) for cause in causes)
        status = next((each for each in stated if type(each) is int), None)
        if status is None or any(isinstance(cause, httpx.TransportError) for cause in causes):
            return NetworkFailure(message, sent=_was_connected(causes))
        body = next(filter(None, (getattr(cause, "body", None) for cause in causes)), None)
        responses = (getattr(cause, "response", None) for cause in causes)
        given = (texts_of(getattr(response, "headers", None)) for response in responses)
        headers = next(filter(None, given), {})
        known = ErrorBody.of(body)
        now_ms = self._clock.now_ms()
        found = ErrorBody(known.kinds, known.message or message, known.error)
        return classify(found, status, headers, self._reading, now_ms=now_ms, secrets=self._secrets)


def _was_connected(causes: Sequence[BaseException]) -> bool:
    """Whether a call that failed had a connection. LiteLLM turns any error of aiohttp's sockets into an
    ``httpx.ConnectError``, so aiohttp's own kind decides where there is one.
    """
    by_aiohttp = any(isinstance(cause, aiohttp.ClientError) for cause in causes)
    unconnected = aiohttp.ClientConnectorError if by_aiohttp else httpx.ConnectError
    return not any(isinstance(cause, unconnected) for cause in causes)


@cache
def _imported() -> Any:
    """LiteLLM without telemetry and debug output; importing it takes seconds, so this runs in a thread.

    LiteLLM's first call imports as much again. So this makes one to an address where nothing can listen:
    else a job's call would import on the event loop, within its deadline.
    """
    os.environ.setdefault(_OFFLINE, "True")  # noqa: TID251 - it reads its settings nowhere else
    sdk: Any = import_module("litellm")
    sdk.suppress_debug_info = True
    sdk.telemetry = False
    with suppress(Exception):
        ask = [{"role": "user", "content": ""}]
        sdk.completion("openai/none", ask, api_base=_BAD_URL, api_key="none", num_retries=0, max_retries=0)
    return sdk


def _is_of_the_sdk(error: Exception) -> bool:
    return type(error).__module__.partition(".")[0] in ("litellm", "openai", "httpx")
