"""``python -m tests.faults``: plays seeded schedules of faults, and checks what became of them.

Each schedule disturbs four runs of two teams on two schedulers, three workers and Redis. A line that is
printed for a schedule is what ``--schedule`` plays again.
"""

from __future__ import annotations

import secrets
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tests.faults.checker import Violation
from tests.faults.kinds import BROKER, KINDS, ONE_SERVER, SENTINELS, playable
from tests.faults.report import Tally, keep, show, summary
from tests.faults.schedule import Schedule, alone, draw, hanging, parse
from tests.faults.session import Session
from tests.faults.shrink import shrink
from tests.support.rabbitmq import RabbitMQ, rabbitmq

SEED_BITS = 31
INTERRUPTED = 128 + signal.SIGINT

app = typer.Typer(add_completion=False)


@app.command(help=__doc__)
def main(
    schedules: Annotated[int, typer.Option(help="How many to play.")] = 10,
    seed: Annotated[
        int | None, typer.Option(help="The first seed; the others follow. Default: fresh.")
    ] = None,
    fault: Annotated[list[str] | None, typer.Option(help="Only this kind of fault; may be repeated.")] = None,
    each: Annotated[bool, typer.Option(help="Play this many schedules of every single fault.")] = False,
    hangs: Annotated[bool, typer.Option(help="100,000 rows, and one standstill after the other.")] = False,
    schedule: Annotated[str | None, typer.Option(help="Play this line again.")] = None,
    shrinks: Annotated[bool, typer.Option("--shrink", help="Look for a shorter schedule.")] = False,
    rabbit: Annotated[bool, typer.Option("--rabbitmq", help="Messages go through RabbitMQ.")] = False,
    sentinels: Annotated[bool, typer.Option(help="Sentinels decide which Redis is used.")] = False,
    out: Annotated[Path, typer.Option(help="Where broken histories are kept.")] = Path("chaos-results"),
) -> None:
    """Play schedules; ends with 1 if one of them broke a promise."""
    first = secrets.randbits(SEED_BITS) if seed is None else seed
    has = [SENTINELS if sentinels else ONE_SERVER, *([BROKER] if rabbit else [])]
    chosen = (
        [hanging(number) for number in range(first, first + schedules)]
        if hangs
        else _chosen(first, schedules, fault or [], each, schedule, playable(*has))
    )
    console, tally = Console(soft_wrap=True), Tally()
    try:
        with _broker(rabbit) as broker, Session(broker, watched=sentinels, expires=True) as session:
            for each_one in chosen:
                history, violations = session.play(each_one)
                tally.add(history, violations)
                show(console, history, violations)
                if violations:
                    console.print(f"  kept in {keep(out, history, violations)}")
                    if shrinks:
                        _shrink(console, session, each_one, violations)
            for violation in session.end():
                console.print(f"[red]{violation}[/red]")
                tally.broken[violation.check] += 1
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    finally:
        console.print(summary(tally))
    raise typer.Exit(1 if tally.broken else 0)


@contextmanager
def _broker(rabbit: bool) -> Iterator[RabbitMQ | None]:
    if not rabbit:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="fairlane-rabbitmq-") as folder, rabbitmq(Path(folder)) as server:
        yield server


def _chosen(
    first: int, count: int, names: list[str], each: bool, line: str | None, kinds: Sequence[str]
) -> list[Schedule]:
    try:
        if line is not None:
            return [parse(line)] * count
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if unknown := [name for name in names if name not in KINDS]:
        raise typer.BadParameter(f"{unknown[0]!r} is no fault; there are {', '.join(KINDS)}")
    seeds = range(first, first + count)
    if each or names:
        return [alone(seed, name) for seed in seeds for name in names or kinds]
    return [draw(seed, kinds) for seed in seeds]


def _shrink(console: Console, session: Session, schedule: Schedule, violations: list[Violation]) -> None:
    broken = {violation.check for violation in violations}
    shortest, plays = shrink(schedule, broken, lambda candidate: session.play(candidate)[1])
    console.print(f"  shortest after {plays} plays: {shortest}")


if __name__ == "__main__":
    # Both end the program as Ctrl-C does, and its processes with it; a shell's background job ignores SIGINT.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    app()
