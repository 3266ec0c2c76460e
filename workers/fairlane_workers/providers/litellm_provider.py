"""Calls through LiteLLM's SDK, for providers whose protocol is not spoken here."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import httpx
from pydantic import SecretStr

from fairlane.clock import Clock
from fairlane.connection import ANYWHERE, Connection
from fairlane.errors import ConfigurationError
from fairlane.job import InvalidResponse, NetworkFailure, Outcome, PermanentFailure, TimedOut
from fairlane.redaction import spellings
from fairlane_workers.providers.answer import Answer, UnreadableError
from fairlane_workers.providers.classify import Reading, classify
from fairlane_workers.providers.conclusion import conclude
from fairlane_workers.providers.contract import OnChunk, Request
from fairlane_workers.providers.error_body import ErrorBody
from fairlane_workers.providers.framing.event import StreamEvent
from fairlane_workers.providers.protocols.openai_chat import OpenAIChat
from fairlane_workers.providers.wording import bounded, scrubbed

_OFFLINE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
"""Else importing it asks a server for prices."""


class LiteLLMProvider:
    """A `Provider` that asks ``litellm.acompletion``, whose own retries are off. Models are LiteLLM's.

    It reads credentials of some providers from the worker's environment by itself, as its documents say.
    Connections are LiteLLM's own: their number and what they do with a proxy are not ours.
    """

    def __init__(self, name: str, connection: Connection, api_key: SecretStr | None, clock: Clock) -> None:
        """Raises `ConfigurationError` where LiteLLM is not installed."""
        if find_spec("litellm") is None:
            remedy = "pip install 'fairlane[litellm]' on the workers."
            raise ConfigurationError(
                f"connections.{name}.protocol", "litellm", "LiteLLM is not installed", remedy
            )
        self._name, self._clock = name, clock
        self._reading = Reading(connection.limit_headers, connection.error_map, OpenAIChat.late_statuses)
        self._key = api_key.get_secret_value() if api_key else None
        self._secrets = spellings(self._key) if self._key else ()
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
        sdk = self._sdk = self._sdk or await asyncio.to_thread(_imported)
        answer, deadline = Answer(), asyncio.timeout(request.timeout_s)
        headers: Mapping[str, str] = {}
        try:
            async with deadline:
                body = {**self._chat.body(request), **self._fixed, "timeout": request.timeout_s}
                reply = await sdk.acompletion(**body)
                headers = _headers_of(reply)
                if request.stream:
                    await self._read_stream(reply, answer, on_chunk, request.max_response_bytes)
                else:
                    await self._read_whole(reply, answer, on_chunk)
        except TimeoutError:
            if not deadline.expired():
                raise  # on_chunk's own
            if not (answer.complete or answer.error):
                return TimedOut(f"no complete answer within {request.timeout_s:g} s")
        except UnreadableError as problem:
            answer.problem = str(problem)
        except Exception as error:
            if not _is_of_the_sdk(error):
                raise
            return self._failure(error)
        now_ms = self._clock.now_ms()
        return conclude(answer, 200, headers, self._reading, now_ms=now_ms, secrets=self._secrets)

    async def aclose(self) -> None:
        """See `Provider.aclose`."""
        if self._sdk is not None:
            with suppress(Exception):  # LiteLLM's clients are its own, and shared
                await self._sdk.close_litellm_async_clients()

    async def _read_whole(self, reply: Any, answer: Answer, on_chunk: OnChunk | None) -> None:
        self._chat.read(reply.model_dump(), answer)
        if on_chunk and answer.text:
            await on_chunk(answer.text)

    async def _read_stream(
        self, reply: AsyncIterator[Any], answer: Answer, on_chunk: OnChunk | None, most: int
    ) -> None:
        size = 0
        async for chunk in reply:
            data = json.dumps(chunk.model_dump(), default=str)
            size += len(data)
            if size > most:
                raise UnreadableError(f"larger than {most} bytes")
            text = self._chat.fold(StreamEvent("message", data), answer)
            if on_chunk and text:
                await on_chunk(text)
        answer.ended = answer.finish_reason is not None

    def _failure(self, error: Exception) -> Outcome:
        """One of LiteLLM's exceptions: what caused it tells more than it does."""
        causes = list(_causes(error))
        message = bounded(scrubbed(str(error), self._secrets))
        if any(isinstance(cause, httpx.TimeoutException) for cause in causes):
            return TimedOut(message)
        if any(isinstance(cause, json.JSONDecodeError) for cause in causes):
            return InvalidResponse(message)
        status = next(
            (at for cause in causes if type(at := getattr(cause, "status_code", None)) is int), None
        )
        if status is None or any(isinstance(cause, httpx.TransportError) for cause in causes):
            return NetworkFailure(message)
        body = next((told for cause in causes if (told := getattr(cause, "body", None))), None)
        headers = next((told for cause in causes if (told := _headers_in(cause))), {})
        known = ErrorBody.of(body)
        now_ms = self._clock.now_ms()
        told = ErrorBody(known.kinds, known.message or message, known.error)
        return classify(told, status, headers, self._reading, now_ms=now_ms, secrets=self._secrets)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The exception, and what it was raised from, to the first."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__


def _headers_in(error: BaseException) -> dict[str, str]:
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    return {str(name).lower(): str(value) for name, value in dict(headers).items()}


def _imported() -> Any:
    """LiteLLM, told to keep to itself; importing it takes seconds, so this runs in a thread."""
    for name, value in _OFFLINE.items():
        os.environ.setdefault(name, value)  # noqa: TID251 - it reads its settings nowhere else
    sdk: Any = import_module("litellm")
    sdk.suppress_debug_info = True
    sdk.telemetry = False
    return sdk


def _is_of_the_sdk(error: Exception) -> bool:
    return type(error).__module__.partition(".")[0] in ("litellm", "openai", "httpx")


def _headers_of(reply: Any) -> Mapping[str, str]:
    told = getattr(reply, "_response_headers", None)
    return {str(name).lower(): str(value) for name, value in dict(told or {}).items()}
