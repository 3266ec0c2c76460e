"""Transmits an answer: whole, streamed, broken or cut off."""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import NoReturn

from aiohttp import web

from fairlane.core.clock import Clock
from fairlane.lab.simulator.model.behaviour import ERROR_STATUS, Fault
from fairlane.lab.simulator.model.served_model import Rejection, ServedModel, Work
from fairlane.lab.simulator.wire.dialect import Dialect, Problem, parts_of
from fairlane.lab.simulator.wire.headers import (
    limit_headers,
    rejection_headers,
    retry_after_forms,
    retry_after_headers,
)

Sleep = Callable[[float], Awaitable[object]]

_JSON = "application/json"
_LINGER_NONE = struct.pack("ii", 1, 0)
_GATEWAY_PAGE = b"<html><head><title>502 Bad Gateway</title></head><body>502 Bad Gateway</body></html>"
_OVERLOADED = Problem(529, "Overloaded")
_FAILURES = {
    401: Problem(401, "The key could not be verified.", "key"),
    429: Problem(429, "Too Many Requests"),
    500: Problem(500, "The server had an error while processing your request."),
    503: Problem(503, "The server is overloaded or not ready yet."),
    529: _OVERLOADED,
}


class Transmission:
    """Carries out the decision of `ServedModel` about one request, and reports the end to it."""

    def __init__(
        self, request: web.Request, dialect: Dialect, model: ServedModel, sleep: Sleep, clock: Clock
    ) -> None:
        self._request, self._dialect, self._model = request, dialect, model
        self._sleep, self._clock = sleep, clock

    def reject(self, rejection: Rejection) -> web.Response:
        """Answer with an error and the configured rate-limit headers."""
        problem, headers = rejection.problem, self._limit_headers(rejected=True)
        if rejection.retry_after_ms is not None and self._model.model.headers in ("retry_after", "full"):
            headers |= self._retry_after(rejection.retry_after_ms)
            problem = replace(problem, retry_after_ms=rejection.retry_after_ms)
        headers = rejection_headers(self._model.model.header_style, problem.code, headers)
        return error_response(self._dialect, problem, headers)

    async def perform(self, work: Work) -> web.StreamResponse:
        """Wait until the model processes admitted work, then answer with its latency or its fault."""
        try:
            await work.turn.wait()
            return await self._perform(work)
        except ConnectionError:
            return _close(self._request, web.Response())
        finally:
            self._model.abandon(work)

    async def _perform(self, work: Work) -> web.StreamResponse:
        fault = work.draw.fault
        if fault is Fault.HANG:
            await self._hang(work)
        if fault is Fault.RESET:
            return self._fail_by_reset(work, fault)
        if fault is not None and fault in ERROR_STATUS:
            return self._fail(work, fault, ERROR_STATUS[fault])
        headers = self._success_headers()
        if work.call.stream and fault is not Fault.RESET_AFTER_WORK:
            return await self._stream(work, headers)
        if self._model.model.keep_alive and fault is None:
            return await self._send_after_blank_lines(work, headers)
        await self._sleep(work.draw.latency_s)
        return await self._whole(work, headers)

    async def _hang(self, work: Work) -> NoReturn:
        """Hold the connection open until the client or the server closes it."""
        try:
            while True:
                await asyncio.Event().wait()
        finally:
            self._model.fail(work, Fault.HANG)

    async def _whole(self, work: Work, headers: Mapping[str, str]) -> web.StreamResponse:
        fault = work.draw.fault
        if fault is Fault.RESET_AFTER_WORK:
            return self._fail_by_reset(work, fault)
        if fault is Fault.ERROR_IN_STREAM:
            return self._fail(work, fault, _OVERLOADED.status)
        body = self._dialect.completion(work.call, work.reply, work.stamp)
        if fault is None:
            self._model.complete(work)
            return web.Response(body=body, content_type=_JSON, headers=headers)
        self._model.fail(work, fault)
        half = body[: len(body) // 2]
        if fault is Fault.MALFORMED:
            return web.Response(body=half, content_type=_JSON, headers=headers)
        announced = {**headers, "Content-Length": str(len(body)), "Content-Type": _JSON}
        response = web.StreamResponse(headers=announced)
        await response.prepare(self._request)
        await response.write(half)
        return _close(self._request, response)

    async def _send_after_blank_lines(self, work: Work, headers: Mapping[str, str]) -> web.StreamResponse:
        """Send a blank line at once, another one after half of the latency, and then the answer."""
        response = web.StreamResponse(headers={**headers, "Content-Type": _JSON})
        await response.prepare(self._request)
        for _ in range(2):
            await response.write(b"\n")
            await self._sleep(work.draw.latency_s / 2)
        self._model.complete(work)
        await response.write(self._dialect.completion(work.call, work.reply, work.stamp))
        await response.write_eof()
        return response

    async def _stream(self, work: Work, headers: Mapping[str, str]) -> web.StreamResponse:
        fault = work.draw.fault
        pieces = parts_of(work.reply.text, self._model.model.chunks)
        frames = self._dialect.frames(work.call, work.reply, pieces, work.stamp)
        first_s, gap_s = self._pace(work, len(frames))
        blocks = self._broken(frames, fault)
        response = web.StreamResponse(headers={**headers, "Content-Type": self._dialect.stream_type})
        if self._model.model.keep_alive:
            await response.prepare(self._request)
            await response.write(b": keep-alive\n\n")
        for index, block in enumerate(blocks):
            await self._sleep(gap_s if index else first_s)
            if not response.prepared:
                await response.prepare(self._request)
            if index == len(blocks) - 1:
                self._record_end(work)
            await response.write(block)
        if fault is Fault.CUT_STREAM:
            return _close(self._request, response)
        await response.write_eof()
        return response

    def _broken(self, frames: list[bytes], fault: Fault | None) -> list[bytes]:
        """The blocks that the server sends of ``frames`` under ``fault``."""
        middle = len(frames) // 2
        if fault is Fault.CUT_STREAM:
            return [*frames[:middle], frames[middle][: len(frames[middle]) // 2]]
        if fault is Fault.MALFORMED:
            inside_json = frames[middle].index(b"{") + 8
            return [*frames[:middle], frames[middle][:inside_json] + b"\n\n", *frames[middle + 1 :]]
        if fault is Fault.ERROR_IN_STREAM:
            return [*frames[: min(1, middle)], self._dialect.stream_error(_OVERLOADED)]
        return frames

    def _record_end(self, work: Work) -> None:
        """Record the end before the last byte leaves, so that a client that has read it may call at once."""
        if work.draw.fault is None:
            self._model.complete(work)
        else:
            self._model.fail(work, work.draw.fault)

    def _pace(self, work: Work, frames: int) -> tuple[float, float]:
        """Seconds before the first frame and between frames; they add up to the latency."""
        latency_s = work.draw.latency_s
        if frames == 1:
            return latency_s, 0.0
        first_s = latency_s * self._model.model.first_chunk_share
        return first_s, (latency_s - first_s) / (frames - 1)

    def _fail(self, work: Work, fault: Fault, status: int) -> web.Response:
        headers = self._limit_headers()
        self._model.fail(work, fault)
        if status == 404:
            return web.Response(status=404, headers=headers)
        if status == 502:
            return web.Response(status=502, body=_GATEWAY_PAGE, content_type="text/html", headers=headers)
        return error_response(self._dialect, _FAILURES[status], headers)

    def _fail_by_reset(self, work: Work, fault: Fault) -> web.Response:
        self._model.fail(work, fault)
        return reset(self._request)

    def _success_headers(self) -> dict[str, str]:
        headers = self._limit_headers()
        wait_ms = self._model.model.success_retry_after_ms
        return headers if wait_ms is None else headers | self._retry_after(wait_ms)

    def _limit_headers(self, *, rejected: bool = False) -> dict[str, str]:
        model = self._model.model
        if model.headers not in ("ratelimit", "full") or (model.headers_on == "rejected" and not rejected):
            return {}
        headers = limit_headers(model.header_style, self._dialect, self._model.levels(), self._clock.now_ms())
        if model.reset_header:
            return headers
        return {name: value for name, value in headers.items() if "reset" not in name}

    def _retry_after(self, wait_ms: int) -> dict[str, str]:
        form = self._model.model.retry_after_form
        style = self._model.model.header_style
        forms = retry_after_forms(style, self._dialect) if form == "default" else (form,)
        return retry_after_headers(forms, wait_ms, self._clock.now_ms())


def error_response(
    dialect: Dialect, problem: Problem, headers: Mapping[str, str] | None = None
) -> web.Response:
    """The answer that reports ``problem`` in the protocol's form."""
    return web.Response(
        status=dialect.status(problem),
        body=dialect.error(problem),
        content_type=_JSON,
        headers={**dialect.error_headers(problem), **(headers or {})},
    )


def reset(request: web.Request) -> web.Response:
    """Reset the connection (RST, not an orderly close). The server never sends the response returned here."""
    transport = request.transport
    if transport is not None:
        connection = transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
        transport.abort()
    return web.Response()


def _close(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """Close the connection after the bytes written so far, although Content-Length announced more."""
    if request.transport is not None:
        request.transport.close()
    return response
