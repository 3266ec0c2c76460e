"""Predictions: work that one request begins, that goes on by itself, and that others ask for or cancel."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from aiohttp import web

from fairlane.clock import Clock
from fairlane.testing.provider.behaviour import Fault
from fairlane.testing.provider.dialect import Dialect, Problem, write_json
from fairlane.testing.provider.protocols.replicate import Replicate, Standing
from fairlane.testing.provider.served_model import ServedModel, Work
from fairlane.testing.provider.stats import PredictionStats
from fairlane.testing.provider.transmission import Sleep, error_response

MOST_WAIT_S = 60.0
"""What ``Prefer: wait`` waits where it names no number; also the most."""

_INTERRUPTED = "Prediction interrupted; please retry (code: PA)"
_UNAUTHENTICATED = Problem(401, "You did not pass a valid authentication token")
_UNKNOWN = Problem(404, "The requested resource could not be found.")


@dataclass(slots=True)
class _Prediction:
    standing: Standing
    over: asyncio.Event = field(default_factory=asyncio.Event)
    making: asyncio.Task[None] | None = None


class Predictions:
    """All of them, until `forget`. ``authorized`` judges a request's key."""

    def __init__(
        self, clock: Clock, sleep: Sleep, authorized: Callable[[web.Request, Dialect], bool]
    ) -> None:
        self._clock, self._sleep, self._authorized = clock, sleep, authorized
        self._dialect = Replicate()
        self._known: dict[str, _Prediction] = {}
        self._stats = PredictionStats()

    @property
    def routes(self) -> Sequence[web.RouteDef]:
        """Where they are asked for; they are begun by `begin`."""
        one = "/v1/predictions/{prediction}"
        return [
            web.get("/v1/predictions", self._list),
            web.get(one, self._look),
            web.post(f"{one}/cancel", self._cancel),
        ]

    def takes(self, dialect: Dialect, work: Work) -> bool:
        """Whether such work goes on by itself. Other faults are those of the request that begins it."""
        return isinstance(dialect, Replicate) and work.draw.fault in (None, Fault.HANG, Fault.ERROR_IN_STREAM)

    async def begin(self, request: web.Request, model: ServedModel, work: Work) -> web.Response:
        """Begin admitted work, and say how far it is: at once, or after what the request prefers to wait."""
        self._stats.begun += 1
        given: dict[str, Any] = (await request.json())["input"]
        name = uuid.uuid4().hex[:26]  # as long as Replicate's, and never given twice
        made = _Prediction(Standing(name, work.call.model, given, "starting", (), self._clock.now_ms()))
        made.making = asyncio.create_task(self._make(made, model, work))
        self._known[name] = made
        preference, _, seconds = request.headers.get("Prefer", "").partition("=")
        if preference == "wait":
            with suppress(TimeoutError):
                async with asyncio.timeout(min(float(seconds or MOST_WAIT_S), MOST_WAIT_S)):
                    await made.over.wait()
        return self._told(request, made, 201)

    def stats(self) -> PredictionStats:
        """The counts as they stand."""
        return self._stats.model_copy()

    def forget(self) -> None:
        """Break off what is being made, and begin anew."""
        for made in self._known.values():
            if made.making is not None:
                made.making.cancel()
        self._known, self._stats = {}, PredictionStats()

    async def _make(self, made: _Prediction, model: ServedModel, work: Work) -> None:
        fault = work.draw.fault
        try:
            await work.turn.wait()
            made.standing = replace(made.standing, status="processing", started_ms=self._clock.now_ms())
            if fault is Fault.HANG:
                await asyncio.Event().wait()
            await self._speak(made, work, model.model.chunks)
            if fault is Fault.ERROR_IN_STREAM:
                model.fail(work, fault)
                made.standing = replace(made.standing, status="failed", error=_INTERRUPTED)
            else:
                model.complete(work)
                tokens = work.call.prompt_tokens, work.reply.completion_tokens
                made.standing = replace(made.standing, status="succeeded", tokens=tokens)
        finally:
            if fault is Fault.HANG and not work.over:
                model.fail(work, fault)
            model.abandon(work)
            made.standing = replace(made.standing, completed_ms=self._clock.now_ms())
            made.over.set()

    async def _speak(self, made: _Prediction, work: Work, chunks: int) -> None:
        """Let the output appear piece by piece, the last one at the end."""
        text = work.reply.text
        count = max(1, min(chunks, len(text)))
        edges = [len(text) * index // count for index in range(count + 1)]
        for begin, end in pairwise(edges):
            await self._sleep(work.draw.latency_s / count)
            made.standing = replace(made.standing, pieces=[*made.standing.pieces, text[begin:end]])

    async def _look(self, request: web.Request) -> web.Response:
        if not self._authorized(request, self._dialect):
            return error_response(self._dialect, _UNAUTHENTICATED)
        self._stats.looked += 1
        made = self._known.get(request.match_info["prediction"])
        return error_response(self._dialect, _UNKNOWN) if made is None else self._told(request, made, 200)

    async def _cancel(self, request: web.Request) -> web.Response:
        if not self._authorized(request, self._dialect):
            return error_response(self._dialect, _UNAUTHENTICATED)
        made = self._known.get(request.match_info["prediction"])
        if made is None:
            return error_response(self._dialect, _UNKNOWN)
        if not made.over.is_set() and made.making is not None:
            self._stats.cancelled += 1
            made.standing = replace(made.standing, status="canceled")
            made.making.cancel()
        return self._told(request, made, 200)

    async def _list(self, request: web.Request) -> web.Response:
        if not self._authorized(request, self._dialect):
            return error_response(self._dialect, _UNAUTHENTICATED)
        told = [
            self._dialect.document(made.standing, _root(request)) for made in reversed(self._known.values())
        ]
        return _json({"previous": None, "next": None, "results": told[:100]}, 200)

    def _told(self, request: web.Request, made: _Prediction, status: int) -> web.Response:
        return _json(self._dialect.document(made.standing, _root(request)), status)


def _root(request: web.Request) -> str:
    return f"{request.scheme}://{request.host}/v1"


def _json(value: Any, status: int) -> web.Response:
    return web.Response(status=status, body=write_json(value), content_type="application/json")
