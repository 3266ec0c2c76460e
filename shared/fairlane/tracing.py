"""OpenTelemetry on the client's side: a span of each submission, in the application's own trace.

The run's spec takes the span's context along, as W3C ``traceparent``, so that workers go on with it. Nothing
is imported for that: an application that traces has OpenTelemetry loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from fairlane.run import RunSpec

Mark: TypeAlias = Callable[[RunSpec], RunSpec]
"""Gives a spec the trace that it is submitted in."""

SCOPE = "fairlane"


@contextmanager
def submitting() -> Iterator[Mark]:
    """A span around a submission, where the application traces; else nothing."""
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is None:
        yield lambda spec: spec.model_copy(update={"trace": None})
        return
    with api.get_tracer(SCOPE).start_as_current_span("fairlane.submit", kind=api.SpanKind.PRODUCER) as span:

        def mark(spec: RunSpec) -> RunSpec:
            span.set_attribute("fairlane.run", spec.run)
            span.set_attribute("fairlane.team", spec.team)
            return spec.model_copy(update={"trace": _traceparent(span.get_span_context())})

        yield mark


def _traceparent(context: Any) -> str | None:
    """Nothing of a span that nobody records."""
    if not (context.is_valid and context.trace_flags.sampled):
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
