"""Says how a run that was waited for ended, and turns that into the command's exit code."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from fairlane.cli.failures import FAILED
from fairlane.cli.output import complain, say
from fairlane.cli.runs.run_views import ending
from fairlane.cli.runs.selection import RunCommand
from fairlane.core.errors import SubmissionError
from fairlane.core.figures import counted, plain_number
from fairlane.model.run import RunState
from fairlane.model.run_status import RunStatus

OPTION = "--fail-on-error"


def read_share(given: object) -> float:
    """``"0.05"`` or ``"5%"`` as 0.05. Raises ``typer.BadParameter``."""
    text = str(given).strip()
    try:
        share = plain_number(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise typer.BadParameter(f"{text!r} is no share of the items: write 0.05 or 5%, from 0 to 1")
    return share


FailOnErrorOption = Annotated[
    float,
    typer.Option(
        OPTION,
        metavar="[SHARE]",
        parser=read_share,
        show_default="0, any failure",
        help="End with 1 if more than this share of the items failed: 0.05 or 5%; 1 allows all failures.",
    ),
]


class FailingCommand(TyperCommand):
    """A command that waits for a run. ``--fail-on-error`` without a share means 0."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments; a share that is left out is 0. A command that does not wait takes no share."""
        shared, parsed = any(part.partition("=")[0] == OPTION for part in args), with_shares(args)
        found = super().parse_args(ctx, parsed)
        if shared and ctx.params.get("wait") is False:
            raise typer.BadParameter(f"{OPTION} is for the end of the run: give --wait, too", ctx)
        return found


class FailingRunCommand(FailingCommand, RunCommand):
    """The same for a command about a run that exists."""


def with_shares(args: list[str]) -> list[str]:
    """The arguments with a share after each option that lacks it."""
    given: list[str] = []
    for part, following in zip(args, [*args, ""][1:], strict=True):
        given += [part, "0"] if part == OPTION and not _is_share(following) else [part]
    return given


def conclude(status: RunStatus, allowed: float = 0.0) -> None:
    """Say how the run ended. The exit code is 1 if it did not complete, or if more failed than ``allowed``,
    a share of its items.
    """
    if not status.state.finished:
        say_held(status)
        raise typer.Exit(FAILED)
    say(f"run {status.run} {ending(status)}")
    if status.state is not RunState.COMPLETED:
        raise typer.Exit(FAILED)
    if failed_share(status) > allowed:
        more = f", more than {OPTION} allows ({allowed:.3g} of {counted(status.items, 'item')})"
        say(
            f"{counted(status.failed, 'job')} failed{more if allowed else ''}; "
            f"`fairlane summary {status.run}` says why"
        )
        raise typer.Exit(FAILED)


@contextmanager
def fails_if_refused() -> Iterator[None]:
    """Say why a run has no results, and end with 1, where reading them raises `SubmissionError`."""
    try:
        yield
    except SubmissionError as refused:
        complain(str(refused))
        raise typer.Exit(FAILED) from refused


def say_held(status: RunStatus) -> None:
    """Say which rejections hold the run, and what ends that."""
    for each in status.rejections:
        say(f"run {status.run} is held: {each.lane} rejected its first calls alike: {each.words}")
    say(f"`fairlane resume {status.run}` tries again, `fairlane cancel {status.run}` ends it")


def failed_share(status: RunStatus) -> float:
    """Failed jobs per item, 1 at most. A failed task counts once, since nothing evaluates its item."""
    return min(1.0, status.failed / status.items) if status.items else 0.0


def _is_share(text: str) -> bool:
    try:
        read_share(text)
    except typer.BadParameter:
        return False
    return True
