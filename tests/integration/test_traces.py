"""One trace from an application's submission to the provider's answer, sent by a worker's own exporter."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from fairlane import exact_match
from tests.support.cluster import all_succeeded, cluster
from tests.support.wait import wait_until

SECRET = "Xyzzy42"
ITEMS = 4


class Collected:
    """What was exported, whole and as spans."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    @property
    def spans(self) -> list[Span]:
        requests = [ExportTraceServiceRequest.FromString(body) for body in list(self.bodies)]
        scopes = [scope for each in requests for whose in each.resource_spans for scope in whose.scope_spans]
        return [span for scope in scopes for span in scope.spans]


@contextmanager
def collector() -> Iterator[tuple[str, Collected]]:
    """An OTLP endpoint on the loopback address, and what it is sent."""
    collected = Collected()

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collected.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", collected
        finally:
            server.shutdown()
            thread.join()


def number_of(attempt: Span) -> int:
    """Which attempt of its job this was."""
    return next(each.value.int_value for each in attempt.attributes if each.key == "fairlane.attempt")


def test_a_submission_and_its_calls_are_one_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(shown))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    with collector() as (url, collected):
        env = {
            "FAIRLANE_TRACING__ENABLED": "true",
            "OTEL_EXPORTER_OTLP_ENDPOINT": url,
            "OTEL_BSP_SCHEDULE_DELAY": "200",
        }
        with cluster(tmp_path, workers=1, env=env) as made:
            rows = [{"q": f"{SECRET} {number}", "answer": SECRET} for number in range(ITEMS)]
            run = made.client.submit(
                dataset=rows,
                prompt="{{ q }}",
                model=f"sim:{made.new_model()}",
                evaluators=[exact_match(expected="answer")],
            )
            all_succeeded(run)
            wait_until(lambda: sum(span.name.startswith("chat ") for span in collected.spans) == ITEMS)
    (submission,) = shown.get_finished_spans()
    context = submission.get_span_context()
    assert context is not None
    spans = collected.spans
    assert {span.trace_id for span in spans} == {context.trace_id.to_bytes(16, "big")}
    attempts = {span.span_id for span in spans if span.name == "fairlane.attempt"}
    parents = {span.parent_span_id for span in spans if span.name == "fairlane.attempt"}
    assert (len(attempts), parents) == (ITEMS, {context.span_id.to_bytes(8, "big")})
    for part in ("fairlane.granted", "chat "):
        assert {span.parent_span_id for span in spans if span.name.startswith(part)} == attempts
    # A worker that stalled has returned a permit; the attempt that followed was not queued by the submission.
    firsts = {span.span_id for span in spans if span.name == "fairlane.attempt" and number_of(span) == 1}
    assert {span.parent_span_id for span in spans if span.name == "fairlane.queued"} == firsts
    assert not any(SECRET.encode() in body for body in collected.bodies)
