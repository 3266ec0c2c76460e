"""Where a worker's traces go, if anywhere: OpenTelemetry is an extra, and loaded only where it is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fairlane.errors import ConfigurationError
from fairlane.settings import TracingSettings
from fairlane_workers.watch import Watch


class Traces(Watch, Protocol):
    """Hears of calls, and is closed when the worker ends."""

    def close(self) -> None:
        """Send what is left; may take seconds."""
        ...


def open_traces(settings: TracingSettings) -> Sequence[Traces]:
    """One, or none where nothing is traced. Raises `ConfigurationError` where the extra is missing."""
    if not settings.enabled:
        return ()
    try:
        from fairlane_workers.spans import Spans
    except ImportError as error:
        problem = f"OpenTelemetry is not installed ({error.name})"
        raise ConfigurationError(
            "tracing.enabled", True, problem, "Do: pip install 'fairlane[otel]'."
        ) from None
    return (Spans(settings),)
