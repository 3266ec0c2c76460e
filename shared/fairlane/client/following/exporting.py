"""Sends a run's records to a tool that keeps evaluations, with the messages that its tasks sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fairlane.core.errors import FairlaneError, TemplateError
from fairlane.export.trackers.exported import Exported, ExportedRun, Exporter
from fairlane.model.lane import FUNCTIONS
from fairlane.model.record import Record
from fairlane.model.run import Plan, RunSpec, cell_of
from fairlane.pipeline.rendering import Rendering


def send_records(
    spec: RunSpec, records: Iterable[Record], exporter: Exporter, name: str, target: str
) -> Exported:
    """Send records by the exporter of that name. Raises `MissingExtra` before it reads one.

    Raises `FairlaneError` in the words of the tool's package, and ``OSError`` where it cannot be reached.
    """
    try:
        return exporter(ExportedRun(spec, messages_of(spec)), records, target)
    except (FairlaneError, OSError):
        raise
    except Exception as error:
        raise FairlaneError(f"{name} did not take the records: {type(error).__name__}: {error}") from error


def messages_of(spec: RunSpec) -> Callable[[Record], list[dict[str, Any]] | None]:
    """Renders the messages of a record's task; ``None`` for one without, or that read earlier outputs."""
    rendering = Rendering(Plan(spec=spec))

    def messages(record: Record) -> list[dict[str, Any]] | None:
        if not spec.models or spec.order.remembers or record.model.startswith(f"{FUNCTIONS}:"):
            return None
        try:
            return rendering.task(cell_of(spec, record.item), record.row).messages or None
        except (TemplateError, ValueError):
            return None

    return messages
