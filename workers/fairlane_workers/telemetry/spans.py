"""OpenTelemetry on the worker's side: spans of an attempt, as children of its run's submission.

The only module that imports OpenTelemetry; the engine loads it if ``tracing.enabled``. Attributes are names,
numbers and outcomes: no text of a prompt, an answer or a provider's message. A model's call is named as in
the conventions for generative AI, so that LLM tools read its span:
https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/
"""

import time
from collections.abc import Mapping
from urllib.parse import urlsplit

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.util.types import AttributeValue

from fairlane.config.connections.connection import Connection
from fairlane.config.connections.presets import PRESETS, PROVIDER_OF_PROTOCOL
from fairlane.config.sections import TracingSettings
from fairlane.core.errors import TemplateError
from fairlane.core.version import __version__
from fairlane.model.job import JobState
from fairlane.model.outcome import Outcome, Success
from fairlane.model.run import RunSpec
from fairlane.pipeline.rendering import Call
from fairlane_workers.execution.inputs import JobInputs
from fairlane_workers.execution.reporter import FinishedCall
from fairlane_workers.telemetry.metrics import OUTCOMES

MS = 1_000_000
ABORTED = "aborted"

PROVIDER_NAMES: Mapping[str, str] = {
    "azure_openai": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "vertex": "gcp.vertex_ai",
    "xai": "x_ai",
    "mistral": "mistral_ai",
}
"""Providers whose name in the conventions is another; a provider that they do not list keeps its own."""

_OF_HOST = {urlsplit(preset.base_url).netloc: name for name, preset in PRESETS.items() if preset.base_url}
_FAMILIES = {"openai_responses": "openai"}

_INTEGERS = {
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "seed": "seed",
}
_NUMBERS = ("temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty")


class Spans:
    """Makes an attempt's spans when its call has ended, with the times of its parts, so they delay no call.

    ``fairlane.attempt`` reaches from the permit to the end; a first attempt's begins at the submission.
    Inside are ``fairlane.queued`` (of a first attempt), ``fairlane.granted`` (permit to start), and the call.
    A model's call is named for its operation and model, a function's ``fairlane.call``.
    """

    def __init__(
        self,
        settings: TracingSettings,
        connections: Mapping[str, Connection],
        processor: SpanProcessor | None = None,
    ) -> None:
        """``processor`` takes the spans. Left out, the variables ``OTEL_*`` say where they are sent."""
        self._connections = connections
        self._most = settings.items_per_run
        resource = Resource.create({SERVICE_NAME: "fairlane-worker"})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor or BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("fairlane", __version__)

    def called(self, call: FinishedCall) -> None:
        """See `Observer`."""
        spec = call.inputs.spec
        if spec.trace is None or not self._is_chosen(spec, call.attempt.job):
            return
        ended = time.time_ns()
        started = ended - call.took_ms * MS
        granted = started - call.wire_ms * MS
        queued = min(spec.submitted_ms * MS, granted) if call.attempt.number == 1 else granted
        within = trace.set_span_in_context(trace.NonRecordingSpan(_parent(spec.trace)))
        attempt = self._tracer.start_span(
            "fairlane.attempt", within, trace.SpanKind.CONSUMER, _attempt(call), start_time=queued
        )
        inside = trace.set_span_in_context(attempt)
        if queued < granted:
            self._tracer.start_span("fairlane.queued", inside, start_time=queued).end(granted)
        self._tracer.start_span("fairlane.granted", inside, start_time=granted).end(started)
        name, fields = self._call(call)
        made = self._tracer.start_span(name, inside, trace.SpanKind.CLIENT, fields, start_time=started)
        if not isinstance(call.outcome, Success):
            made.set_status(trace.StatusCode.ERROR)
        made.end(ended)
        attempt.end(ended)

    def recorded(self, state: JobState) -> None:
        """See `Observer`."""

    def close(self) -> None:
        """Send the spans that are left, and end; may take seconds."""
        self._provider.shutdown()

    def _call(self, call: FinishedCall) -> tuple[str, dict[str, AttributeValue]]:
        """The name of a call's span, and its attributes."""
        made, fields = model_call(call.inputs), _outcome(call)
        if made is None:
            return "fairlane.call", fields
        connection = self._connections.get(made.model.partition(":")[0])
        return span_name(made), fields | attributes(made, call.outcome, connection)

    def _is_chosen(self, spec: RunSpec, job: int) -> bool:
        """Chooses whole items, evenly spread; of a run that still receives rows, the first ones."""
        item = job // spec.steps
        if spec.open:
            return item < self._most
        return item % max(1, -(-spec.items // self._most)) == 0


def _parent(traceparent: str) -> trace.SpanContext:
    _, trace_id, span_id, flags = traceparent.split("-")
    return trace.SpanContext(int(trace_id, 16), int(span_id, 16), True, trace.TraceFlags(int(flags, 16)))


def _attempt(call: FinishedCall) -> dict[str, AttributeValue]:
    attempt = call.attempt
    return {
        "fairlane.run": attempt.run,
        "fairlane.team": attempt.team,
        "fairlane.job": attempt.job,
        "fairlane.attempt": attempt.number,
        "fairlane.lane": attempt.lane,
    }


def _outcome(call: FinishedCall) -> dict[str, AttributeValue]:
    outcome = call.outcome
    fields: dict[str, AttributeValue] = {
        "fairlane.lane": call.attempt.lane,
        "fairlane.outcome": ABORTED if outcome is None else OUTCOMES[type(outcome)],
    }
    if outcome is not None and outcome.status is not None:
        fields["http.response.status_code"] = outcome.status
    if not isinstance(outcome, Success):
        fields["error.type"] = fields["fairlane.outcome"]
    return fields


def model_call(inputs: JobInputs) -> Call | None:
    """The call of a model that an attempt makes; ``None`` for a function's, and for one without a request."""
    try:
        call = None if inputs.problem else inputs.call
    except (TemplateError, ValueError):
        return None
    return None if call is None or call.arguments is not None else call


def operation(call: Call) -> str:
    """What the call does, in the words of the conventions."""
    return "chat" if call.inputs is None else "embeddings"


def span_name(call: Call) -> str:
    """The operation and the model."""
    return f"{operation(call)} {_model(call)}"


def attributes(
    call: Call, outcome: Outcome | None, connection: Connection | None
) -> dict[str, AttributeValue]:
    """A call's attributes of the conventions, without its texts; ``connection``: the one that it names."""
    fields: dict[str, AttributeValue] = {
        "gen_ai.operation.name": operation(call),
        "gen_ai.request.model": _model(call),
        **_request(call.params),
    }
    if connection is not None:
        fields |= _server(connection)
    if isinstance(outcome, Success):
        fields |= _answer(outcome)
    return fields


def provider_name(connection: Connection) -> str:
    """Who answers: the configured provider, else the one at that address, else whose protocol it is."""
    name = (
        connection.provider
        or PROVIDER_OF_PROTOCOL.get(connection.protocol)
        or _OF_HOST.get(urlsplit(connection.base_url).netloc)
        or _FAMILIES.get(connection.protocol, connection.protocol)
    )
    return PROVIDER_NAMES.get(name, name)


def _model(call: Call) -> str:
    return call.model.partition(":")[2]


def _server(connection: Connection) -> dict[str, AttributeValue]:
    fields: dict[str, AttributeValue] = {"gen_ai.provider.name": provider_name(connection)}
    address = urlsplit(connection.base_url)
    if address.hostname:
        fields["server.address"] = address.hostname
        fields["server.port"] = address.port or (443 if address.scheme == "https" else 80)
    return fields


def _request(params: Mapping[str, object]) -> dict[str, AttributeValue]:
    fields: dict[str, AttributeValue] = {}
    for name, said in _INTEGERS.items():
        if type(value := params.get(name)) is int:
            fields[f"gen_ai.request.{said}"] = value
    for name in _NUMBERS:
        value = params.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            fields[f"gen_ai.request.{name}"] = float(value)
    return fields


def _answer(answer: Success) -> dict[str, AttributeValue]:
    given = {
        "gen_ai.response.model": answer.model,
        "gen_ai.response.finish_reasons": (answer.finish_reason,) if answer.finish_reason else None,
        "gen_ai.usage.input_tokens": answer.usage.input_tokens,
        "gen_ai.usage.output_tokens": answer.usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": answer.usage.cached_tokens,
        "gen_ai.usage.cache_creation.input_tokens": answer.usage.written_tokens,
    }
    return {name: value for name, value in given.items() if value is not None}
