"""``python -m fairlane.lab.rehearsal``: plays the catalogue, or one scenario from elsewhere."""

import argparse
import json
import signal
import sys
from pathlib import Path

from pydantic import ValidationError
from rich.console import Console

from fairlane.core.errors import ConfigurationError, FairlaneError, MissingExtra
from fairlane.lab.rehearsal.catalogue import CATALOGUE, MINUTES, scenarios
from fairlane.lab.rehearsal.figures.picture import can_draw, draw
from fairlane.lab.rehearsal.figures.report import table, write
from fairlane.lab.rehearsal.player import Played, play, play_all
from fairlane.lab.rehearsal.scenario import Scenario

FAILED, MISUSED, INTERRUPTED = 1, 2, 128 + signal.SIGINT
UNBOUNDED_WIDTH = 200  # columns if the output is no terminal


def main(argv: list[str] | None = None) -> int:
    """Play the scenarios that the command line names. Returns the process' exit code."""
    options = _parse(argv)
    try:
        if options.scenario_json:
            _play_one(sys.stdin.read())
        else:
            _play_catalogue(options)
    except FairlaneError as error:
        print(error, file=sys.stderr)  # noqa: T201 - nothing is logged here
        return MISUSED if isinstance(error, ConfigurationError) else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _play_one(text: str) -> None:
    """Play one scenario; print a line of JSON every few seconds, and one with its figures at the end."""
    try:
        scenario = Scenario.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "scenario"
        raise ConfigurationError(field, first.get("input"), first["msg"]) from None

    def tell(seconds: float, done: int, jobs: int) -> None:
        _print_line({"seconds": seconds, "done": done, "jobs": jobs})

    _print_line({"measure": play(scenario, tell).measure.model_dump(mode="json")})


def _print_line(data: object) -> None:
    sys.stdout.write(json.dumps(data) + "\n")
    sys.stdout.flush()


def _play_catalogue(options: argparse.Namespace) -> None:
    names: list[str] = options.scenario or []
    chosen = scenarios(names, options.seeds, options.workers or (), options.minutes)
    if options.out is not None and not options.no_pictures and not can_draw():
        raise MissingExtra("a picture", "matplotlib", "pictures")
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
    parser = argparse.ArgumentParser(prog="python -m fairlane.lab.rehearsal", description=__doc__)
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
    parser.add_argument(
        "--scenario-json",
        action="store_true",
        help="play the one scenario on standard input, report in JSON lines",
    )
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
