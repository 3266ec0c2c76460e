"""``fairlane batch``: a file of the OpenAI Batch API becomes a run, its records that API's output files."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fairlane.apps.batchfile.reading import REQUEST_FIELD, check_batch, read_batch
from fairlane.apps.batchfile.writing import BatchWriter, default_errors
from fairlane.cli.failures import FAILED
from fairlane.cli.invocation import Invocation, with_settings
from fairlane.cli.output import complain, say
from fairlane.cli.runs.conclusion import FailingCommand, FailOnErrorOption, conclude
from fairlane.cli.runs.runs import wait_for
from fairlane.cli.runs.selection import find_run
from fairlane.cli.runs.submitting import options
from fairlane.cli.runs.submitting.assignments import read_params
from fairlane.client.client import Client
from fairlane.client.deployment import Deployment
from fairlane.client.outputs import Run
from fairlane.core.figures import be, counted
from fairlane.export.files import check_place, place_of
from fairlane.model.run import RunState

app = typer.Typer()

BESIDE = "beside the output, ….errors.jsonl, if there are any"


@dataclass(frozen=True, slots=True)
class Batch:
    """Options: the requests or their run, the model, and the files to write."""

    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE")]
    """File for the answers. It appears once it is complete."""

    requests: Annotated[Path | None, typer.Argument(metavar="FILE")] = None
    """Lines of custom_id, method, url and body. Not with --run."""

    model: Annotated[str | None, typer.Option("--model", "-m", metavar="MODEL")] = None
    """"<connection>:<model>" for all lines, or a template for it over a line's body."""

    connection: Annotated[str | None, typer.Option(metavar="NAME")] = None
    """Ask each line's own body.model, through this connection."""

    errors: Annotated[Path | None, typer.Option(metavar="FILE", show_default=BESIDE)] = None
    """File for requests without an answer."""

    run: Annotated[str | None, typer.Option("--run", metavar="RUN")] = None
    """Write the files of a batch that was submitted earlier; waits for its end."""

    param: Annotated[list[str] | None, options.call_option(metavar="K=V")] = None
    """A parameter for lines whose body does not set it. Repeatable."""

    name: Annotated[str | None, options.call_option(metavar="TEXT", show_default="the file's name")] = None
    """Name of the run."""


@app.command(cls=FailingCommand)
@with_settings
def batch(
    invocation: Invocation,
    given: Batch,
    priority: options.PriorityOption = 0,
    timeout: options.TimeoutOption = None,
    max_attempts: options.MaxAttemptsOption = None,
    on_refusal: options.OnRefusalOption = "fail",
    fail_on_error: FailOnErrorOption = 0.0,
    check: options.CheckOption = True,
) -> None:
    """Send the requests of an OpenAI batch file, wait for the answers, and write them as that API does.

    Every line is checked before anything is sent. The command prints the run's id at once. If you interrupt
    it, the run continues, and --run writes its files later. Ends with 1 if a request failed, or if the
    run did not complete.
    """
    output, requests, run = given.output, given.requests, given.run
    if given.errors is None and place_of(output).direct:
        raise typer.BadParameter(f"{output} is no file beside which errors can go: give --errors FILE")
    errors = given.errors or default_errors(output)
    _check_files(requests, output, errors)
    if (requests is None) == (run is None):
        raise typer.BadParameter("give a file of requests, or --run RUN for one that was submitted before")
    asked = None if requests is None else _model(given.model, given.connection)
    if requests is None and (said := _of_requests(given, priority, timeout, max_attempts, on_refusal, check)):
        raise typer.BadParameter(f"--run was submitted with options of its own: leave out {said}")
    with invocation.deployment() as deployment:
        if requests is not None:
            own_models = given.connection is not None
            count = check_batch(requests, own_models=own_models)
            batch_run = Client.over(deployment).submit(
                read_batch(requests, own_models=own_models),
                request=REQUEST_FIELD,
                model=asked,
                params=read_params("--param", given.param or ()),
                name=requests.name if given.name is None else given.name,
                priority=priority,
                timeout=timeout,
                retry=options.retry_of(max_attempts),
                on_refusal=on_refusal,
                check=check,
            )
            say(f"run {batch_run.id}: {counted(count, 'request')}")
        else:
            batch_run = find_run(deployment, str(run))
        _write(deployment, batch_run, output, errors, fail_on_error, always=given.errors is not None)


def _of_requests(
    given: Batch, priority: int, timeout: float | None, max_attempts: int | None, on_refusal: str, check: bool
) -> str:
    """The options that only a file of requests takes, as far as they are given."""
    options = {
        "--model": given.model,
        "--connection": given.connection,
        "--param": given.param,
        "--name": given.name,
        "--priority": priority,
        "--timeout": timeout,
        "--max-attempts": max_attempts,
        "--on-refusal": on_refusal != "fail",
        "--no-check": not check,
    }
    return ", ".join(name for name, value in options.items() if value)


def _check_files(requests: Path | None, output: Path, errors: Path) -> None:
    """Raises ``typer.BadParameter`` where files are one, ``OSError`` where one cannot be written."""
    places = [path.resolve() for path in (requests, output, errors) if path is not None]
    if len(set(places)) < len(places):
        raise typer.BadParameter("requests, output and errors must be different files")
    check_place(output)
    check_place(errors)


def _model(model: str | None, connection: str | None) -> str:
    """The model of each line's request, or a template for it."""
    if (model is None) == (connection is None):
        raise typer.BadParameter("give --model MODEL, or --connection NAME to ask each line's own model")
    if connection is None:
        return str(model)
    if ":" in connection or "{" in connection:
        raise typer.BadParameter(f"{connection!r} is no connection's name; --model takes a whole model")
    return f"{connection}:{{{{ {REQUEST_FIELD}['model'] }}}}"


def _write(
    deployment: Deployment, run: Run, output: Path, errors: Path, allowed: float, *, always: bool
) -> None:
    """Wait for the run and write its files."""
    try:
        status = wait_for(deployment, run)
        if status.state is RunState.REFUSED:
            complain(f"run {run.id} was refused: {status.reason}")
            raise typer.Exit(FAILED)
        writer = BatchWriter(run.id, (status.finished_ms or status.submitted_ms) // 1000, run.params)
        written = writer.write(run.results(), output, errors, always=always)
    except KeyboardInterrupt:
        places = ["-o", str(output), *(["--errors", str(errors)] if always else [])]
        say(f"`{shlex.join(['fairlane', 'batch', '--run', run.id, *places])}` writes its files later")
        raise
    say(f"{counted(written.answers, 'answer')} {be(written.answers)} in {output}")
    if written.errors:
        say(f"{counted(written.errors, 'request')} without an answer {be(written.errors)} in {errors}")
    conclude(status, allowed)
