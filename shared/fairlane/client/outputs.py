"""Makes files, frames, summaries, reports and exports of a run's records once it is over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, TypeVar

from fairlane.client.apps import load_app
from fairlane.client.handle import RunHandle
from fairlane.client.handles import require_handle
from fairlane.client.views.comparison import Comparison, compare_runs
from fairlane.client.views.summary import Summary
from fairlane.core.errors import FairlaneError, TemplateError
from fairlane.export.formats import Format, export_records
from fairlane.export.parsed import Parsed, parse_outputs
from fairlane.export.tables import to_frame, to_polars_frame
from fairlane.export.trackers.exported import Exported, ExportedRun, Exporter, find_exporter
from fairlane.model.lane import FUNCTIONS
from fairlane.model.record import Record
from fairlane.model.run import Plan, RunRef, RunSpec, cell_of
from fairlane.pipeline.rendering import Rendering

Value = TypeVar("Value")


class Run(RunHandle):
    """A submitted run. It runs without this object, and `Client.run` finds it again.

    Methods that make files, data frames, summaries and reports of its records wait for its end, but for
    ``summary(so_far=True)``. All of them raise what `results` does.
    """

    def export(self, path: str | PathLike[str], format: Format | None = None, *, raw: bool = False) -> int:
        """Write every record to a file, in item order, once the run is over; returns how many there are.

        ``format`` is "jsonl", "csv" or "parquet", by default that of the path's suffix. An error leaves no
        partial file. In a table, a text that a spreadsheet would run as a formula begins with ``'``, unless
        ``raw``. Raises `UnknownFormat`, `MissingExtra` (Parquet needs pyarrow) and ``OSError`` at once.
        """
        return export_records(self.results(), path, format, raw=raw)

    def export_to(self, exporter: str, target: str = "") -> Exported:
        """Send every record to another tool, once the run is over; returns how many, and where they are.

        ``exporter`` is "mlflow", "phoenix", "inspect", or one that another package adds. ``target`` names
        MLflow's experiment, Phoenix's dataset, or a folder for Inspect's logs. Keeps records on disk.
        Raises `UnknownFormat` at once, `MissingExtra` before it reads a record, and `FairlaneError` or
        ``OSError`` where the tool does not take the records.
        """
        found = find_exporter(exporter)
        ended = self._ended()
        return send_records(ended.spec, ended.items, found, exporter, target)

    def to_pandas(self) -> Any:
        """Every record as a row of a ``pandas.DataFrame``, once the run is over; all in memory.

        Raises `MissingExtra` where pandas is not installed.
        """
        return to_frame(self.results())

    def to_polars(self) -> Any:
        """Every record as a row of a ``polars.DataFrame``, once the run is over; all in memory.

        Raises `MissingExtra` where polars is not installed.
        """
        return to_polars_frame(self.results())

    def parsed(self, kind: type[Value]) -> Iterator[Parsed[Value]]:
        """Every record with its output as a value of ``kind``, in item order; waits for the run to be over.

        ``kind`` is a pydantic model, or another type that pydantic validates. An output that is no such JSON
        has a ``problem`` instead of a ``value``. For the records of `stream`: `fairlane.parse_outputs`.
        """
        return parse_outputs(self.results(), kind)

    def summary(self, *, so_far: bool = False) -> Summary:
        """Scores, failures, tokens, cost and time over all records, once the run is over.

        With ``so_far`` it does not wait, and summarises the items that have ended. Until the run is over, it
        then leaves out sessions and scores that this process computes. Prices are those of the client's
        settings. Raises what `results` does.
        """
        from fairlane.client.views.tally import summarise

        status, spec, records, items = self._by_now() if so_far else self._ended()
        sessions = records.of_sessions() if spec.session_evals and status.state.finished else ()
        summary = summarise(spec, status.state, items, self._deployment.settings.prices, sessions)
        served = self._deployment.runs.served(RunRef(spec.team, spec.run))
        return replace(summary, predict=status.predict, score=status.score, served=served)

    def compare(self, other: Run, *, by: str | Sequence[str] | None = None) -> Comparison:
        """Compare the scores of two runs that are over, item by item: ``other`` minus this one.

        Items are the same if row, repetition, prompt and model are. A dimension in which each run has only
        one value is left out, so that two models or two prompts can be compared. ``by`` names the row's
        fields that identify it, by default all. Raises `SubmissionError` for a field that no row has, and
        what `results` raises.
        """
        require_handle(other, Run)
        return compare_runs(self, other, by)

    def report(self, path: str | PathLike[str], *, examples: int = 0, against: Run | None = None) -> int:
        """Write a self-contained HTML page once the run is over; returns its number of records. It shows
        scores and their distributions, cost, throughput against the limits, and failures.

        It has texts of prompts, rows and outputs only for ``examples`` items. Prices are those of the
        client's settings. With ``against`` it also compares the scores item by item, as `compare` does: this
        run minus that one. Raises what `results` does, and ``OSError``.
        """
        status, spec, records, items = self._ended()
        compared = None if against is None else against.compare(self)
        sessions = records.of_sessions()
        written: int = load_app("report")(
            self._deployment, spec, status, items, sessions, path, examples, compared
        )
        return written


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
    """Renders the messages of a record's task; ``None`` if it has none, or if it read earlier outputs."""
    rendering = Rendering(Plan(spec=spec))

    def messages(record: Record) -> list[dict[str, Any]] | None:
        if not spec.models or spec.order.remembers or record.model.startswith(f"{FUNCTIONS}:"):
            return None
        try:
            return rendering.task(cell_of(spec, record.item), record.row).messages or None
        except (TemplateError, ValueError):
            return None

    return messages
