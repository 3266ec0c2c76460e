"""Runs predictions: one request creates a prediction, which runs by itself; others poll or cancel it."""

import asyncio
import re
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from aiohttp import web

from fairlane.core.clock import Clock
from fairlane.lab.simulator.http.transmission import Sleep, error_response
from fairlane.lab.simulator.model.behaviour import Fault
from fairlane.lab.simulator.model.served_model import ServedModel, Work
from fairlane.lab.simulator.model.stats import PredictionStats
from fairlane.lab.simulator.protocols.replicate import PredictionState, Replicate
from fairlane.lab.simulator.wire.dialect import Dialect, Problem, parts_of, write_json

MOST_WAIT_S = 60.0
"""The longest wait of ``Prefer: wait``, and the wait without a number (Replicate's HTTP API, 60 s)."""

_WAIT = re.compile(r"wait(?:=(\d+(?:\.\d+)?))?", re.ASCII)
_INTERRUPTED = "Prediction interrupted; please retry (code: PA)"
_UNAUTHENTICATED = Problem(401, "You did not pass a valid authentication token")
_UNKNOWN = Problem(404, "The requested resource could not be found.")


@dataclass(slots=True)
class _Prediction:
    state: PredictionState
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Predictions:
    """All predictions since the last `forget`. ``authorized`` checks a request's key."""

    def __init__(
        self, clock: Clock, sleep: Sleep, authorized: Callable[[web.Request, Dialect], bool]
    ) -> None:
        self._clock, self._sleep, self._authorized = clock, sleep, authorized
        self._dialect = Replicate()
        self._known: dict[str, _Prediction] = {}
        self._stats = PredictionStats()

    @property
    def routes(self) -> Sequence[web.RouteDef]:
        """The routes that list, poll and cancel predictions; `begin` creates them."""
        one = "/v1/predictions/{prediction}"
        return [
            web.get("/v1/predictions", partial(self._guarded, answer=self._list)),
            web.get(one, partial(self._guarded, answer=self._poll)),
            web.post(f"{one}/cancel", partial(self._guarded, answer=self._cancel)),
        ]

    def takes(self, dialect: Dialect, work: Work) -> bool:
        """Whether ``work`` runs as a prediction. All other faults hit the request that would create it."""
        return isinstance(dialect, Replicate) and work.draw.fault in (None, Fault.HANG, Fault.ERROR_IN_STREAM)

    async def begin(self, request: web.Request, model: ServedModel, work: Work) -> web.Response:
        """Start admitted work and answer with its state, after the wait that the request prefers."""
        self._stats.begun += 1
        given: dict[str, Any] = (await request.json())["input"]
        name = uuid.uuid4().hex[:26]  # as long as an identifier of Replicate
        state = PredictionState(name, work.call.model, given, "starting", (), self._clock.now_ms())
        prediction = _Prediction(state)
        prediction.task = asyncio.create_task(self._run(prediction, model, work))
        self._known[name] = prediction
        if preferred := _WAIT.fullmatch(request.headers.get("Prefer", "")):
            with suppress(TimeoutError):
                async with asyncio.timeout(min(float(preferred[1] or MOST_WAIT_S), MOST_WAIT_S)):
                    await prediction.ended.wait()
        return self._answer(request, prediction, 201)

    def stats(self) -> PredictionStats:
        """The current counts."""
        return self._stats.model_copy()

    def forget(self) -> None:
        """Cancel all running predictions, forget all, and reset the counts."""
        for prediction in self._known.values():
            if prediction.task is not None:
                prediction.task.cancel()
        self._known, self._stats = {}, PredictionStats()

    async def _run(self, prediction: _Prediction, model: ServedModel, work: Work) -> None:
        fault = work.draw.fault
        try:
            await work.turn.wait()
            prediction.state = replace(prediction.state, status="processing", started_ms=self._clock.now_ms())
            if fault is Fault.HANG:
                await asyncio.Event().wait()
            await self._write(prediction, work, model.model.chunks)
            if fault is Fault.ERROR_IN_STREAM:
                model.fail(work, fault)
                prediction.state = replace(prediction.state, status="failed", error=_INTERRUPTED)
            else:
                model.complete(work)
                tokens = work.call.prompt_tokens, work.reply.completion_tokens
                prediction.state = replace(prediction.state, status="succeeded", tokens=tokens)
        finally:
            if fault is Fault.HANG and not work.ended:
                model.fail(work, fault)
            model.abandon(work)
            prediction.state = replace(prediction.state, completed_ms=self._clock.now_ms())
            prediction.ended.set()

    async def _write(self, prediction: _Prediction, work: Work, chunks: int) -> None:
        """Extend the output piece by piece; the last piece appears when the latency is over."""
        pieces = parts_of(work.reply.text, chunks)
        for piece in pieces:
            await self._sleep(work.draw.latency_s / len(pieces))
            prediction.state = replace(prediction.state, pieces=[*prediction.state.pieces, piece])

    async def _guarded(
        self, request: web.Request, answer: Callable[[web.Request], web.Response]
    ) -> web.Response:
        if not self._authorized(request, self._dialect):
            return error_response(self._dialect, _UNAUTHENTICATED)
        return answer(request)

    def _poll(self, request: web.Request) -> web.Response:
        self._stats.looked += 1
        prediction = self._known.get(request.match_info["prediction"])
        if prediction is None:
            return error_response(self._dialect, _UNKNOWN)
        return self._answer(request, prediction, 200)

    def _cancel(self, request: web.Request) -> web.Response:
        prediction = self._known.get(request.match_info["prediction"])
        if prediction is None:
            return error_response(self._dialect, _UNKNOWN)
        if not prediction.ended.is_set() and prediction.task is not None:
            self._stats.cancelled += 1
            prediction.state = replace(prediction.state, status="canceled")
            prediction.task.cancel()
        return self._answer(request, prediction, 200)

    def _list(self, request: web.Request) -> web.Response:
        root, newest_first = _root(request), reversed(self._known.values())
        documents = [self._dialect.document(prediction.state, root) for prediction in newest_first]
        return _json({"previous": None, "next": None, "results": documents[:100]}, 200)

    def _answer(self, request: web.Request, prediction: _Prediction, status: int) -> web.Response:
        return _json(self._dialect.document(prediction.state, _root(request)), status)


def _root(request: web.Request) -> str:
    return f"{request.scheme}://{request.host}/v1"


def _json(value: Any, status: int) -> web.Response:
    return web.Response(status=status, body=write_json(value), content_type="application/json")
