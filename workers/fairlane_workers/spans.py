"""OpenTelemetry on the worker's side: spans of an attempt, as children of its run's submission.

The one module that imports OpenTelemetry; `fairlane_workers.traces` loads it where the settings say so.
Attributes are names, numbers and outcomes: no text of a prompt, an answer or a provider's message.
"""

from __future__ import annotations

import time

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.util.types import AttributeValue

from fairlane.job import JobState, Success
from fairlane.run import RunSpec
from fairlane.settings import TracingSettings
from fairlane.tracing import SCOPE
from fairlane.version import __version__
from fairlane_workers.metrics import OUTCOMES
from fairlane_workers.watch import Called

MS = 1_000_000
ABORTED = "aborted"


class Spans:
    """Made when a call is over, with the times at which its parts began: calls are not held up by them.

    ``fairlane.attempt`` reaches from the permit to the end, of a first attempt from the submission on. In it
    are ``fairlane.queued`` (of a first attempt), ``fairlane.granted`` (permit to start), ``fairlane.call``.
    """

    def __init__(self, settings: TracingSettings, processor: SpanProcessor | None = None) -> None:
        """``processor`` takes the spans; left out, they are sent as the variables ``OTEL_*`` say."""
        self._most = settings.items_per_run
        resource = Resource.create({SERVICE_NAME: "fairlane-worker"})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor or BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer(SCOPE, __version__)

    def called(self, call: Called) -> None:
        """See `Watch`."""
        spec = call.work.spec
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
        made = self._tracer.start_span(
            "fairlane.call", inside, trace.SpanKind.CLIENT, _call(call), start_time=started
        )
        if not isinstance(call.outcome, Success):
            made.set_status(trace.StatusCode.ERROR)
        made.end(ended)
        attempt.end(ended)

    def recorded(self, state: JobState) -> None:
        """See `Watch`."""

    def close(self) -> None:
        """Send what is left, and end."""
        self._provider.shutdown()

    def _is_chosen(self, spec: RunSpec, job: int) -> bool:
        """Whole items, evenly spread; of a run whose rows are still coming, the first ones."""
        item = job // spec.steps
        if spec.open:
            return item < self._most
        return item % max(1, -(-spec.items // self._most)) == 0


def _parent(traceparent: str) -> trace.SpanContext:
    _, trace_id, span_id, flags = traceparent.split("-")
    return trace.SpanContext(int(trace_id, 16), int(span_id, 16), True, trace.TraceFlags(int(flags, 16)))


def _attempt(call: Called) -> dict[str, AttributeValue]:
    attempt = call.attempt
    return {
        "fairlane.run": attempt.run,
        "fairlane.team": attempt.team,
        "fairlane.job": attempt.job,
        "fairlane.attempt": attempt.number,
        "fairlane.lane": attempt.lane,
    }


def _call(call: Called) -> dict[str, AttributeValue]:
    outcome = call.outcome
    told: dict[str, AttributeValue] = {
        "fairlane.lane": call.attempt.lane,
        "fairlane.outcome": ABORTED if outcome is None else OUTCOMES[type(outcome)],
    }
    if outcome is not None and outcome.status is not None:
        told["http.response.status_code"] = outcome.status
    if isinstance(outcome, Success):
        usage = {"input": outcome.usage.input_tokens, "output": outcome.usage.output_tokens}
        told |= {f"gen_ai.usage.{kind}_tokens": count for kind, count in usage.items() if count is not None}
    return told
