"""``python -m tests.benchmarks.control``: plays the catalogue, and writes what it shows."""

import argparse
import signal
import sys
from pathlib import Path

from rich.console import Console

from fairlane.core.errors import FairlaneError
from tests.benchmarks.control.catalogue import CATALOGUE, MINUTES, scenarios
from tests.benchmarks.control.picture import draw
from tests.benchmarks.control.player import Played, play_all
from tests.benchmarks.control.report import table, write

FAILED, INTERRUPTED = 1, 128 + signal.SIGINT
UNBOUNDED_WIDTH = 200  # columns if the output is no terminal


def main(argv: list[str] | None = None) -> int:
    """Play the scenarios that the command line names. Returns the process' exit code."""
    options = _parse(argv)
    try:
        _play(options)
    except FairlaneError as error:
        print(error, file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _play(options: argparse.Namespace) -> None:
    names: list[str] = options.scenario or []
    chosen = scenarios(names, options.seeds, options.workers or (), options.minutes)
    console = Console(stderr=True, highlight=False)
    console.print(f"{len(chosen)} rehearsals of {options.minutes:g} minutes")
    played: list[Played] = []
    for each in play_all(chosen, options.processes):
        played.append(each)
        scenario = each.scenario
        console.print(
            f"{len(played)}/{len(chosen)} {scenario.name}, {scenario.workers} workers, seed {scenario.seed}"
        )
    measures = [each.measure for each in played]
    width = None if sys.stdout.isatty() else UNBOUNDED_WIDTH
    Console(highlight=False, width=width).print(table(measures))
    if options.out is not None:
        pictures = [] if options.no_pictures else _draw(played, options.out)
        write(measures, options.minutes, options.seeds, pictures, options.out)


def _draw(played: list[Played], folder: Path) -> list[str]:
    """Draw a picture of each scenario: of its first seed, and of 4 workers if it was played with several."""
    chosen: dict[str, Played] = {}
    for each in sorted(played, key=lambda one: (one.scenario.seed, abs(one.scenario.workers - 4))):
        chosen.setdefault(each.scenario.name, each)
    for name, each in chosen.items():
        draw(each.courses[0], folder / f"{name}.png")
    return [f"{name}.png" for name in chosen]


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.control", description=__doc__)
    parser.add_argument(
        "--scenario",
        action="append",
        choices=list(CATALOGUE),
        metavar="NAME",
        help="repeatable; all if left out",
    )
    parser.add_argument("--seeds", type=_count, default=1, help="how many seeds, from 0 (1)")
    parser.add_argument(
        "--workers", type=_count, action="append", metavar="N", help="repeatable; else 1, 4 and 16, or 4"
    )
    parser.add_argument("--minutes", type=_positive, default=MINUTES, help=f"measured of each ({MINUTES:g})")
    parser.add_argument("--processes", type=_count, default=2, help="rehearsals at a time (2)")
    parser.add_argument("--out", type=Path, help="folder for results.json, README.md and pictures")
    parser.add_argument("--no-pictures", action="store_true", help="draw none")
    return parser.parse_args(argv)


def _count(text: str) -> int:
    return int(_at_least(float(int(text)), 1))


def _positive(text: str) -> float:
    return _at_least(float(text), 1)


def _at_least(value: float, least: float) -> float:
    if not value >= least:
        raise argparse.ArgumentTypeError(f"must be {least:g} or more, got {value:g}")
    return value


if __name__ == "__main__":
    # Like Ctrl-C: so started servers are stopped, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    raise SystemExit(main())
