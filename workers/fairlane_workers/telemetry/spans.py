"""OpenTelemetry on the worker's side: spans of an attempt, as children of its run's submission.

The only module that imports OpenTelemetry; the engine loads it if ``tracing.enabled``. Attributes are names,
numbers and outcomes: no text of a prompt, an answer or a provider's message.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.util.types import AttributeValue

from fairlane.config.connections.connection import Connection
from fairlane.config.sections import TracingSettings
from fairlane.core.version import __version__
from fairlane.model.job import JobState
from fairlane.model.outcome import Success
from fairlane.model.run import RunSpec
from fairlane_workers.execution.reporter import FinishedCall
from fairlane_workers.telemetry import gen_ai
from fairlane_workers.telemetry.metrics import OUTCOMES

MS = 1_000_000
ABORTED = "aborted"


class Spans:
    """Makes an attempt's spans when its call has ended, with the times of its parts, so they delay no call.

    ``fairlane.attempt`` reaches from the permit to the end; a first attempt's begins at the submission.
    Inside are ``fairlane.queued`` (of a first attempt), ``fairlane.granted`` (permit to start), and the call.
    A model's call is named for its operation and model (`gen_ai`), a function's ``fairlane.call``.
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
        made, fields = gen_ai.model_call(call.inputs), _outcome(call)
        if made is None:
            return "fairlane.call", fields
        connection = self._connections.get(made.model.partition(":")[0])
        return gen_ai.span_name(made), fields | gen_ai.attributes(made, call.outcome, connection)

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
