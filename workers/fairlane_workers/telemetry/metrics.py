"""A worker's metrics: calls by lane and outcome, time from permit to call, tokens, round trips to Redis."""

import re
from collections.abc import Callable, Iterable
from importlib.metadata import version
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from fairlane.model.job import TERMINAL, JobState
from fairlane.model.outcome import Aborted, Outcome, Success
from fairlane.telemetry.log_stream import LostLines
from fairlane.telemetry.metrics_server import LabelValues
from fairlane_workers.execution.reporter import FinishedCall

QUICK_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Buckets in seconds for waits that should take a round trip or a few."""

CALL_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)
"""Buckets in seconds for a call: from a cached word to a long streamed answer."""

OUTCOMES = {kind: re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower() for kind in get_args(Outcome)}
"""The label value of each outcome class, such as ``rate_limited``."""


class WorkerMetrics:
    """The registry of one process. Labels have few values; none holds a run, a job or a team.

    Each call and each job costs some microseconds on the event loop.
    """

    def __init__(
        self,
        *,
        slots: Callable[[], int],
        lanes: Iterable[str],
        most_lanes: int,
        busy: Callable[[], int],
        consumed: Callable[[], int],
        pending: Callable[[], int] = lambda: 0,
    ) -> None:
        """``lanes`` are labels from the start; once there are ``most_lanes``, others share one label.

        ``slots``, ``busy``, ``consumed`` and ``pending`` are read at each scrape.
        """
        self.registry = registry = CollectorRegistry()
        self._lanes = LabelValues(most_lanes)
        for lane in lanes:
            self._lanes.of(lane)
        ProcessCollector(registry=registry)
        LostLines.register(registry)
        info = Gauge("fairlane_build_info", "1", ["version", "role"], registry=registry)
        info.labels(version("fairlane"), "worker").set(1)
        for name, meaning, read in (
            ("fairlane_worker_slots", "Calls that the worker can run at once", slots),
            ("fairlane_worker_busy", "Calls that use a slot", busy),
            ("fairlane_worker_pending", "Calls without a slot that a provider works on", pending),
            ("fairlane_worker_lanes", "Lanes whose queues it consumes", consumed),
        ):
            Gauge(name, meaning, registry=registry).set_function(read)
        self._calls = Counter(
            "fairlane_calls", "Calls that ended, by outcome", ["lane", "outcome"], registry=registry
        )
        self._call_seconds = Histogram(
            "fairlane_call_seconds", "Calls, from start to end", ["lane"], buckets=CALL_S, registry=registry
        )
        self._wire_seconds = Histogram(
            "fairlane_permit_to_wire_seconds", "Permit to start", buckets=QUICK_S, registry=registry
        )
        self._tokens = Counter("fairlane_tokens", "Tokens used", ["lane", "kind"], registry=registry)
        self._jobs = Counter("fairlane_jobs_ended", "Jobs that ended here", ["state"], registry=registry)
        for state in sorted(TERMINAL):
            self._jobs.labels(state)
        self.redis_seconds = Histogram(
            "fairlane_redis_seconds", "A round trip to Redis", buckets=QUICK_S, registry=registry
        )
        self.loop_delay = Histogram(
            "fairlane_worker_loop_delay_seconds", "Delay of its loop", buckets=QUICK_S, registry=registry
        )

    def called(self, call: FinishedCall) -> None:
        """See `Observer`."""
        (lane,) = self._lanes.of(call.attempt.lane)
        kind = Aborted if call.outcome is None else type(call.outcome)
        self._calls.labels(lane, OUTCOMES[kind]).inc()
        self._call_seconds.labels(lane).observe(call.took_ms / 1000)
        self._wire_seconds.observe(call.wire_ms / 1000)
        if isinstance(call.outcome, Success):
            usage = call.outcome.usage
            kinds = {
                "input": usage.input_tokens,
                "output": usage.output_tokens,
                "cached": usage.cached_tokens,
                "written": usage.written_tokens,
            }
            for name, count in kinds.items():
                if count:
                    self._tokens.labels(lane, name).inc(count)

    def recorded(self, state: JobState) -> None:
        """See `Observer`."""
        self._jobs.labels(state).inc()
