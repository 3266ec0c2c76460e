"""Spans of submissions and attempts: what they say, what they hang on, and what they do not tell."""

from __future__ import annotations

import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler

from fairlane.client.submitting.submission import submitting
from fairlane.config.connections.connection import Connection
from fairlane.config.sections import TracingSettings
from fairlane.core.errors import ConfigurationError
from fairlane.model.outcome import RateLimited, Success
from fairlane.model.run import RunSpec
from fairlane.model.tokens import Usage
from fairlane_workers.engine import open_spans
from fairlane_workers.telemetry.spans import Spans
from tests.support.worker_parts import WorkerParts, on_loop

PARENT = f"00-{7:032x}-{8:016x}-01"
SPEC = RunSpec(run="r1", team="search", name="r1", models=("sim:fast",), output_field=None,
               request_field="q", rows=1, page_rows=1, submitted_ms=0)  # fmt: skip


CONNECTIONS = {"sim": Connection.model_validate({"provider": "openai"})}


class Application:
    """An application that traces, or samples nothing."""

    def __init__(self, sampler: Sampler, patch: pytest.MonkeyPatch) -> None:
        self._told = InMemorySpanExporter()
        provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._told))
        patch.setattr(trace, "get_tracer", provider.get_tracer)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self._told.get_finished_spans()


def test_a_submission_is_a_span_that_its_run_takes_along(monkeypatch: pytest.MonkeyPatch) -> None:
    application = Application(ALWAYS_ON, monkeypatch)
    with submitting() as mark:
        marked = mark(SPEC)
    (span,) = application.spans
    context = span.get_span_context()
    assert (span.name, dict(span.attributes or {})) == (
        "fairlane.submit",
        {"fairlane.run": "r1", "fairlane.team": "search"},
    )
    assert context is not None
    assert marked.trace == f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    assert RunSpec.read(marked.model_dump_json()) == marked


def test_a_submission_that_is_not_sampled_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    application = Application(ALWAYS_OFF, monkeypatch)
    with submitting() as mark:
        assert mark(SPEC).trace is None
    assert application.spans == ()


def test_where_nobody_traces_nothing_is_loaded_and_an_old_trace_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    with submitting() as mark:
        assert mark(SPEC.model_copy(update={"trace": PARENT})).trace is None
    assert "opentelemetry.trace" not in sys.modules


class Traced:
    """A worker whose spans are looked at."""

    def __init__(self, parts: WorkerParts, items: int = 1000) -> None:
        self._told = InMemorySpanExporter()
        settings = TracingSettings(enabled=True, items_per_run=items)
        self.spans_of = Spans(settings, CONNECTIONS, SimpleSpanProcessor(self._told))
        parts.executor._reporter.observers = (self.spans_of,)

    def spans(self) -> list[ReadableSpan]:
        return sorted(
            self._told.get_finished_spans(), key=lambda span: (span.start_time or 0, -(span.end_time or 0))
        )

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans() if span.name == name]


def test_an_attempt_hangs_on_its_submission_with_its_parts_in_order() -> None:
    async def scene(parts: WorkerParts) -> None:
        traced = Traced(parts)
        parts.provider.answer = Success("yes", Usage(12, 3), "stop", model="fast-2026-01-01")
        (attempt,) = parts.grant([{"q": "a secret question"}], trace=PARENT, params={"temperature": 0.5})
        await parts.executor.execute(attempt)
        whole, queued, granted, call = (
            *traced.named("fairlane.attempt"),
            *traced.named("fairlane.queued"),
            *traced.named("fairlane.granted"),
            *traced.named("chat fast"),
        )
        assert whole.parent is not None
        assert (whole.parent.trace_id, whole.parent.span_id) == (7, 8)
        for part in (queued, granted, call):
            assert part.parent == whole.get_span_context()
        assert queued.end_time == granted.start_time
        assert granted.end_time == call.start_time
        assert call.end_time == whole.end_time
        assert dict(call.attributes or {}) == {
            "fairlane.lane": "sim:fast",
            "fairlane.outcome": "success",
            "http.response.status_code": 200,
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "fast",
            "gen_ai.request.temperature": 0.5,
            "gen_ai.response.model": "fast-2026-01-01",
            "gen_ai.response.finish_reasons": ("stop",),
            "gen_ai.usage.input_tokens": 12,
            "gen_ai.usage.output_tokens": 3,
            "server.address": "api.openai.com",
            "server.port": 443,
        }
        shown = "".join(span.to_json() for span in traced.spans())
        assert "secret" not in shown
        assert "yes" not in shown

    on_loop(scene)


def test_a_refused_call_is_an_error_without_the_providers_words() -> None:
    async def scene(parts: WorkerParts) -> None:
        traced = Traced(parts)
        parts.provider.answer = RateLimited("slow down, customer 42")
        (attempt,) = parts.grant(trace=PARENT)
        await parts.executor.execute(attempt)
        (call,) = traced.named("chat fast")
        assert call.status.status_code is trace.StatusCode.ERROR
        assert (call.attributes or {})["fairlane.outcome"] == "rate_limited"
        assert (call.attributes or {})["error.type"] == "rate_limited"
        assert "customer" not in call.to_json()

    on_loop(scene)


def test_a_run_that_was_submitted_without_a_trace_has_none() -> None:
    async def scene(parts: WorkerParts) -> None:
        traced = Traced(parts)
        (attempt,) = parts.grant()
        await parts.executor.execute(attempt)
        assert traced.spans() == []

    on_loop(scene)


def test_of_a_large_run_a_few_items_are_traced_and_those_with_all_their_jobs() -> None:
    async def scene(parts: WorkerParts) -> None:
        traced = Traced(parts, items=5)
        for attempt in parts.grant(20, trace=PARENT):
            await parts.executor.execute(attempt)
        jobs = [(span.attributes or {})["fairlane.job"] for span in traced.named("fairlane.attempt")]
        assert sorted(jobs) == [0, 4, 8, 12, 16]

    on_loop(scene)


@pytest.fixture
def _without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "fairlane_workers.telemetry.spans", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)


@pytest.mark.usefixtures("_without_the_extra")
def test_without_the_extra_tracing_is_refused_with_the_remedy() -> None:
    assert open_spans(TracingSettings(), {}) == ()
    with pytest.raises(ConfigurationError, match=r"fairlane\[otel\]"):
        open_spans(TracingSettings(enabled=True), {})
