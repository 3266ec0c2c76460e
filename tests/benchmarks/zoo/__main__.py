"""Plays generated providers, and prints how Fairlane and its peers did."""

from __future__ import annotations

import argparse
import secrets
import signal
import sys
from pathlib import Path

from rich.console import Console

from fairlane.core.errors import FairlaneError
from tests.benchmarks.zoo import keeper, learners
from tests.benchmarks.zoo.generator import FULL, SMALL, Size
from tests.benchmarks.zoo.keeper import FAIRLANE, PLAYERS
from tests.benchmarks.zoo.measure import Figures
from tests.benchmarks.zoo.picture import draw
from tests.benchmarks.zoo.report import append_lines, one_line, start_lines, table, worst, write

FAILED, INTERRUPTED = 1, 128 + signal.SIGINT
UNBOUNDED_WIDTH = 200  # columns of output that goes to a file or a pipe
FRESH = 100
FRESH_BITS = 31


def main(argv: list[str] | None = None) -> int:
    """Play the worlds that the command line names. Returns the process' exit code."""
    options = _parse(argv)
    seeds = _seeds(options)
    size = SMALL if options.small else FULL
    players = [FAIRLANE] if options.ours else list(PLAYERS)
    try:
        if options.learners:
            shares = list(learners.play_learners(seeds, options.processes, size))
            _console().print(learners.table(shares))
            return 0
        found = _play(seeds, options.processes, players, size, options.out)
        _show(found, seeds, size, options.out)
    except FairlaneError as error:
        print(error, file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        keeper.close()
    return 0


def _play(
    seeds: list[int], processes: int, players: list[str], size: Size, out: Path | None
) -> list[Figures]:
    """Play all seeds. Each world's figures go to ``figures.jsonl`` at once, so an interrupt loses none."""
    console, found = Console(stderr=True, highlight=False), list[Figures]()
    if out is not None:
        start_lines(out)
    for number, figures in enumerate(keeper.play_seeds(seeds, processes, players, size), 1):
        found += figures
        if out is not None:
            append_lines(figures, out)
        console.print(f"{number}/{len(seeds)} {one_line(figures[0])}", soft_wrap=True)
    return sorted(found, key=lambda figures: (PLAYERS.index(figures.player), figures.seed))


def _show(found: list[Figures], seeds: list[int], size: Size, out: Path | None) -> None:
    console = _console()
    console.print(table(found))
    ours = worst([figures for figures in found if figures.player == FAIRLANE])
    for figures in ours:
        console.print(one_line(figures))
    if out is None:
        return
    write(found, f"seeds {seeds[0]} to {seeds[-1]}, {len(seeds)} of them", out)
    for figures in ours:
        draw(keeper.course_of(figures.seed, FAIRLANE, size), out / f"seed-{figures.seed}.svg")


def _console() -> Console:
    width = None if sys.stdout.isatty() else UNBOUNDED_WIDTH
    return Console(highlight=False, width=width, soft_wrap=True)


def _seeds(options: argparse.Namespace) -> list[int]:
    if options.seed is not None:
        return [options.seed]
    first, last = options.seeds or (None, None)
    if first is None or last is None:
        first = secrets.randbits(FRESH_BITS)
        last = first + options.fresh
    chosen = range(first, last)
    keep = {"all": (0, 1), "even": (0,), "odd": (1,)}[options.half]
    return [seed for seed in chosen if seed % 2 in keep]


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.zoo", description=__doc__)
    parser.add_argument("--seed", type=int, metavar="N", help="play this one again")
    parser.add_argument(
        "--seeds", type=_span, metavar="A..B", help="all from A up to B - 1; default: fresh seeds"
    )
    parser.add_argument("--fresh", type=_count, default=FRESH, metavar="N", help=f"how many fresh ({FRESH})")
    parser.add_argument(
        "--half", choices=("all", "even", "odd"), default="all", help="design on even seeds, report on odd"
    )
    parser.add_argument("--small", action="store_true", help="the short form that CI plays")
    parser.add_argument("--ours", action="store_true", help="without the peers")
    parser.add_argument("--learners", action="store_true", help="both learners, and no lane")
    parser.add_argument("--processes", type=_count, default=2, metavar="N", help="worlds at a time (2)")
    parser.add_argument("--out", type=Path, help="folder for results.json, README.md and the pictures")
    return parser.parse_args(argv)


def _span(text: str) -> tuple[int, int]:
    first, _, last = text.partition("..")
    try:
        span = int(first), int(last)
    except ValueError:
        raise argparse.ArgumentTypeError(f"give A..B, got {text!r}") from None
    if span[0] >= span[1]:
        raise argparse.ArgumentTypeError(f"A must be below B, got {text!r}")
    return span


def _count(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {text}")
    return int(text)


if __name__ == "__main__":
    # SIGTERM then ends the program as Ctrl-C does, and its Redis servers and processes with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    raise SystemExit(main())
