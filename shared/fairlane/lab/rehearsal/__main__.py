"""``python -m fairlane.lab.rehearsal``: plays the scenario on standard input, and reports in JSON lines."""

import json
import signal
import sys

from pydantic import ValidationError

from fairlane.core.errors import ConfigurationError, FairlaneError
from fairlane.core.section import first_flaw
from fairlane.lab.rehearsal.figures.measure import measure
from fairlane.lab.rehearsal.recording import backend, quiet, record
from fairlane.lab.rehearsal.scenario import Scenario

FAILED, MISUSED, INTERRUPTED = 1, 2, 128 + signal.SIGINT


def main() -> int:
    """Play the scenario. Returns the process' exit code."""
    try:
        _play(sys.stdin.read())
    except FairlaneError as error:
        print(error, file=sys.stderr)  # noqa: T201 - nothing is logged here
        return MISUSED if isinstance(error, ConfigurationError) else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _play(text: str) -> None:
    """Play one scenario; print a line of JSON every few seconds, and one with its figures at the end."""
    try:
        scenario = Scenario.model_validate_json(text)
    except ValidationError as error:
        field, value, problem = first_flaw(error)
        raise ConfigurationError(field or "scenario", value, problem) from None

    def tell(seconds: float, done: int, jobs: int) -> None:
        _print_line({"seconds": seconds, "done": done, "jobs": jobs})

    quiet()
    with backend() as redis:
        recording = record(scenario, redis, tell)
    _print_line({"measure": measure(recording).model_dump(mode="json")})


def _print_line(data: object) -> None:
    sys.stdout.write(json.dumps(data) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    # Like Ctrl-C: so started servers are stopped, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    raise SystemExit(main())
