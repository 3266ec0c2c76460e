"""The simulated provider: an HTTP server with one `ServedModel` for each configured model."""

import asyncio
import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from aiohttp import web

from fairlane.core.clock import Clock, SystemClock
from fairlane.core.errors import LocalStackError
from fairlane.lab.simulator.config import SimulatedModel, SimulatorConfig
from fairlane.lab.simulator.http.predictions import Predictions
from fairlane.lab.simulator.http.transmission import Sleep, Transmission, error_response, reset
from fairlane.lab.simulator.model.replies import Composer
from fairlane.lab.simulator.model.served_model import Outage, Rejection, ServedModel, Work
from fairlane.lab.simulator.model.stats import StatsReport
from fairlane.lab.simulator.protocols import DIALECTS
from fairlane.lab.simulator.protocols.openai.chat import OpenAIChat
from fairlane.lab.simulator.wire.dialect import Call, Dialect, Presented, Problem, RequestError, write_json

MAX_BODY_BYTES = 64 * 1024 * 1024
BACKLOG = 2048
_WRONG_KEY = "Incorrect API key provided."
GRACE_SECONDS = 0.05
"""A stop cuts off calls in flight; this grace only lets the server finish answers that it is writing."""

REASONING: Mapping[str, Any] = {
    "temperature": 1,
    "top_p": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "logprobs": False,
    "top_logprobs": 0,
    "logit_bias": {},
    "max_tokens": None,
}
"""Parameters that reasoning models reject, and the one value of each that they accept. Sources: OpenAI's
guide to reasoning models, "Parameter compatibility"; Anthropic's migration guide for Claude Opus 4.7."""


class SimulatedProvider:
    """Serves every protocol of `DIALECTS` with the models of ``config``, and ``/stats``.

    ``clock`` times limits and windows; ``sleep`` waits for latencies (seconds). Use it from one event loop.
    """

    def __init__(
        self,
        config: SimulatorConfig,
        *,
        clock: Clock | None = None,
        sleep: Sleep = asyncio.sleep,  # noqa: TID251 - it simulates latency; tests pass their own
    ) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._sleep = sleep
        self._key = config.api_key.get_secret_value() if config.api_key is not None else None
        self._settings = dict(config.models)
        self._composers = {name: self._composer(name, model) for name, model in config.models.items()}
        self._predictions = Predictions(self._clock, sleep, self._authorized)
        self._runner: web.AppRunner | None = None
        self._url: str | None = None
        self.reset()

    @property
    def url(self) -> str:
        """The server's root, ``http://host:port``, for ``/stats`` and ``/healthz``."""
        if self._url is None:
            raise LocalStackError("simulated provider", "it is not started; await start() first")
        return self._url

    @property
    def base_url(self) -> str:
        """The value for a connection's ``base_url``: the root with ``/v1``."""
        return f"{self.url}/v1"

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Listen, on a free port if ``port`` is 0, and return ``base_url``. Raises ``OSError``."""
        runner = web.AppRunner(
            self._application(), access_log=None, handler_cancellation=True, shutdown_timeout=GRACE_SECONDS
        )
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port, backlog=BACKLOG).start()
        except OSError:
            await runner.cleanup()
            raise
        self._runner = runner
        bound_port = runner.addresses[0][1]
        self._url = f"http://{f'[{host}]' if ':' in host else host}:{bound_port}"
        return self.base_url

    async def stop(self) -> None:
        """Stop listening and cut off calls in flight. Does nothing before a start."""
        self._predictions.forget()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = self._url = None

    def stats(self) -> StatsReport:
        """The answer of ``GET /stats``."""
        return StatsReport(
            uptime_s=(self._clock.monotonic_ms() - self._started_ms) / 1000,
            bad_requests=self._bad_requests,
            unauthorized=self._unauthorized,
            unknown_model=self._unknown_model,
            models={name: model.snapshot() for name, model in self._models.items()},
            predictions=self._predictions.stats(),
        )

    def reset(self) -> None:
        """Start again with zero counts, full buckets and the first draw; calls in flight no longer count."""
        self._started_ms = self._clock.monotonic_ms()
        self._bad_requests = self._unauthorized = self._unknown_model = 0
        self._predictions.forget()
        self._models = {
            name: ServedModel(name, model, self._composers[name], self._config.seed, self._clock)
            for name, model in self._settings.items()
        }

    def change_model(self, name: str, **changes: Any) -> None:
        """Change fields of a model in service; counts stay. Raises ``KeyError`` or ``ValidationError``."""
        model = SimulatedModel.model_validate({**self._settings[name].model_dump(), **changes})
        self._composers[name] = self._composer(name, model)
        self._settings[name] = model
        self._models[name].reconfigure(model, self._composers[name])

    def change_key(self, key: str | None) -> None:
        """Require this key of every later call; ``None`` requires none."""
        self._key = key

    def _composer(self, name: str, model: SimulatedModel) -> Composer:
        return Composer(name, model, self._config.seed)

    def _application(self) -> web.Application:
        application = web.Application(client_max_size=MAX_BODY_BYTES)
        for dialect in DIALECTS:
            answer = partial(self._answer, dialect=dialect)
            application.add_routes([web.post(path, answer) for path in dialect.paths])
        application.add_routes(self._predictions.routes)
        application.add_routes(
            [
                web.get("/v1/models", self._list_models),
                web.get("/stats", self._get_stats),
                web.post("/stats/reset", self._reset_stats),
                web.get("/healthz", self._get_health),
            ]
        )
        return application

    async def _answer(self, request: web.Request, dialect: Dialect) -> web.StreamResponse:
        try:
            body = await request.read()
            if not self._authorized(request, dialect, body):
                return error_response(dialect, Problem(dialect.wrong_key_status, _WRONG_KEY, "key"))
            call, payload = _read_call(request, dialect, body)
        except RequestError as error:
            self._bad_requests += 1
            return error_response(dialect, error.problem)
        except web.HTTPRequestEntityTooLarge:
            self._bad_requests += 1
            return error_response(dialect, Problem(413, f"The body is larger than {MAX_BODY_BYTES} bytes."))
        model = self._models.get(call.model)
        if model is None:
            self._unknown_model += 1
            return error_response(dialect, Problem(404, f"The model `{call.model}` does not exist."))
        if dialect.counts_tokens:
            return web.Response(body=dialect.count(call), content_type="application/json")
        if model.model.reasoning or model.model.rejects:
            rejected = _rejected_parameter(model.model, dialect, payload)
            if rejected is not None:
                self._bad_requests += 1
                return error_response(dialect, rejected)
        transmission = Transmission(request, dialect, model, self._sleep, self._clock)
        match model.arrive(call):
            case Outage():
                return reset(request)
            case Rejection() as rejection:
                return transmission.reject(rejection)
            case Work() as work if self._predictions.takes(dialect, work):
                return await self._predictions.begin(request, model, work)
            case Work() as work:
                return await transmission.perform(work)

    def _authorized(self, request: web.Request, dialect: Dialect, body: bytes = b"") -> bool:
        presented = Presented(request.method, str(request.url), request.headers, body)
        if self._key is None or dialect.accepts(presented, self._key):
            return True
        self._unauthorized += 1
        return False

    async def _list_models(self, request: web.Request) -> web.Response:
        if not self._authorized(request, OpenAIChat()):
            return error_response(OpenAIChat(), Problem(401, _WRONG_KEY))
        models = [
            {"id": name, "object": "model", "created": 0, "owned_by": "fairlane"} for name in self._models
        ]
        return web.json_response({"object": "list", "data": models})

    async def _get_stats(self, _: web.Request) -> web.Response:
        return web.Response(body=self.stats().model_dump_json().encode(), content_type="application/json")

    async def _reset_stats(self, _: web.Request) -> web.Response:
        self.reset()
        return web.Response(body=write_json({"reset": True}), content_type="application/json")

    async def _get_health(self, _: web.Request) -> web.Response:
        return web.Response(body=write_json({"status": "ok"}), content_type="application/json")


def _read_call(request: web.Request, dialect: Dialect, body: bytes) -> tuple[Call, Any]:
    try:
        payload = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError("the body is not valid JSON") from error
    return dialect.parse(payload, {**request.query, **request.match_info}), payload


def _rejected_parameter(
    model: SimulatedModel, dialect: Dialect, payload: Mapping[str, Any]
) -> Problem | None:
    """The rejection of a request's first parameter that ``model`` does not support, or ``None``."""
    for name, value in dialect.parameters(payload).items():
        if value is None:
            continue
        if name in model.rejects or (model.reasoning and name in REASONING and value != REASONING[name]):
            return dialect.unsupported(name, value)
    return None
