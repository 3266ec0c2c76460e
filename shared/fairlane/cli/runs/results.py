"""``fairlane results``: a run's records as JSON lines, CSV or Parquet, or sent to another tool."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from fairlane.cli.invocation import Invocation, with_settings
from fairlane.cli.output import bytes_out, lines_out, say
from fairlane.cli.runs.conclusion import fails_if_refused
from fairlane.cli.runs.selection import LATEST, RunArgument, RunCommand, await_end, find_run
from fairlane.client.outputs import Run
from fairlane.core.errors import UnknownFormat
from fairlane.core.figures import be, counted
from fairlane.export.formats import FORMATS, Format, export_records, format_of, write_records
from fairlane.export.lines import written
from fairlane.export.trackers.exported import exporter_names
from fairlane.model.record import Record

app = typer.Typer()

STANDARD_OUTPUT = Path("-")


@app.command(cls=RunCommand)
@with_settings
def results(
    invocation: Invocation,
    run: RunArgument = LATEST,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="File to write: .jsonl, .csv or .parquet; it appears once complete. -: standard output. "
            "For mlflow the experiment, for phoenix the dataset, for inspect the folder.",
        ),
    ] = STANDARD_OUTPUT,
    stated: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="jsonl, csv or parquet; or send the records to mlflow, phoenix or inspect.",
            show_default="by FILE's name, else jsonl",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Same as --format jsonl.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Write each record when its item ends, not in item order.")
    ] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Tables: do not quote texts that a spreadsheet would run.")
    ] = False,
) -> None:
    """Write a run's records, in item order; waits for the run's end.

    JSON lines are written as they come, tables once all records are there.
    Ends with 1 if the run was refused.
    """
    if as_json and stated not in (None, "jsonl"):
        raise typer.BadParameter(f"--json is --format jsonl: leave out --json or --format {stated}")
    if stated is not None and stated not in FORMATS and stated in exporter_names():
        if follow or raw:
            unused = "--follow" if follow else "--raw"
            raise typer.BadParameter(f"{stated} gets all records at once, as they are: leave out {unused}")
        with invocation.deployment() as deployment:
            _send(find_run(deployment, run), stated, output)
        return
    chosen = _format(output, "jsonl" if as_json else stated)
    if raw and chosen == "jsonl":
        raise typer.BadParameter("--raw is for tables, and JSON lines quote nothing: leave it out")
    with invocation.deployment() as deployment:
        found = find_run(deployment, run)
        with fails_if_refused():
            count = _write(found, output, chosen, follow=follow, raw=raw)
    if output != STANDARD_OUTPUT:
        say(f"{counted(count, 'record')} of run {found.id} {be(count)} in {output}")


def _send(run: Run, exporter: str, output: Path) -> None:
    with fails_if_refused():
        run.wait(progress=True)
        sent = run.export_to(exporter, "" if output == STANDARD_OUTPUT else str(output))
    say(f"{counted(sent.count, 'record')} of run {run.id} {be(sent.count)} in {exporter}: {sent.where}")


def _format(output: Path, stated: str | None) -> Format:
    """The format to write. Raises ``typer.BadParameter`` if it is unknown or cannot go to ``output``."""
    # The writer refuses a folder.
    nameless = output == STANDARD_OUTPUT or output.is_dir()
    try:
        chosen = format_of(output, "jsonl" if nameless and stated is None else stated)
    except UnknownFormat as error:
        raise typer.BadParameter(f"{error} (--format)") from error
    if chosen == "parquet" and output == STANDARD_OUTPUT:
        raise typer.BadParameter("Parquet is written to a file: give --output FILE")
    return chosen


def _write(run: Run, output: Path, chosen: Format, *, follow: bool, raw: bool) -> int:
    """Write the records; returns their number. Raises `SubmissionError` if the run was refused."""
    records: Iterable[Record] = run.stream() if follow else _at_the_end(run)
    if output != STANDARD_OUTPUT:
        return export_records(records, output, chosen, raw=raw)
    if chosen == "jsonl" and (follow or sys.stdout.isatty()):
        return _print_lines(records, at_once=follow)
    return write_records(records, bytes_out(), chosen, raw=raw)


def _at_the_end(run: Run) -> Iterator[Record]:
    """Records in item order. Reading the first waits for the run's end, and shows progress."""
    await_end(run)
    yield from run.results()


def _print_lines(records: Iterable[Record], *, at_once: bool) -> int:
    count = 0
    for _ in written(records, lines_out()):
        count += 1
        if at_once:
            sys.stdout.flush()
    return count
