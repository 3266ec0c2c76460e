"""``python -m tests.benchmarks [NAME …]``: run the benchmarks named, and print what they found.

Without names, all but those that take minutes each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from rich.console import Console

from tests.benchmarks.feeding import feeding
from tests.benchmarks.figures import write_figures
from tests.benchmarks.hidden import hidden_headers, hidden_retry_after, hidden_silent
from tests.benchmarks.idle import idle
from tests.benchmarks.many_teams import many_teams
from tests.benchmarks.overhead import overhead
from tests.benchmarks.peers.comparison import peers
from tests.benchmarks.report import Finding, Report
from tests.benchmarks.rows.batch_file import batch_file
from tests.benchmarks.rows.record_reading import record_reading
from tests.benchmarks.rows.referenced_rows import referenced_rows
from tests.benchmarks.rows.waiting_run import waiting_run
from tests.benchmarks.scale.session import scale
from tests.benchmarks.transport import transport
from tests.benchmarks.workloads import (
    flaky,
    known_limit,
    thirty_thousand,
    token_bound,
    two_lanes,
    unbounded_answers,
)

BENCHMARKS: dict[str, Callable[[], Iterator[Finding]]] = {
    "known": known_limit,
    "lanes": two_lanes,
    "wide": thirty_thousand,
    "tokens": token_bound,
    "unbounded": unbounded_answers,
    "flaky": flaky,
    "hidden-headers": hidden_headers,
    "hidden-retry-after": hidden_retry_after,
    "hidden-silent": hidden_silent,
    "overhead": overhead,
    "teams": many_teams,
    "feed": feeding,
    "million": waiting_run,
    "referenced": referenced_rows,
    "batch": batch_file,
    "records": record_reading,
    "transport": transport,
    "idle": idle,
    "scale": scale,
    "peers": peers,
}

BY_NAME = ("scale", "peers")
"""These run only where somebody names them: they take minutes each."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--save", type=Path, default=Path("bench-results"), help="folder for the figures")
    parser.add_argument("--quick", action="store_true", help="scale, peers: less, in one to two minutes")
    parser.add_argument("--docs", type=Path, help="the page whose tables are written anew")
    parser.add_argument("--rounds", type=int, default=1, help="how often, in turn; scale, peers: once")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are: {', '.join(BENCHMARKS)}")
    console, report = Console(), Report()
    given = {"quick": options.quick, "docs": options.docs, "details": report.details}
    known = BENCHMARKS | {"scale": partial(scale, **given), "peers": partial(peers, **given)}
    names = options.names or [name for name in BENCHMARKS if name not in BY_NAME]
    found: dict[str, list[Finding]] = {}
    for name in names + [name for name in names if name not in BY_NAME] * (options.rounds - 1):
        console.print(f"[bold]{name}[/] … {(BENCHMARKS[name].__doc__ or '').splitlines()[0]}")
        for finding in known[name]():
            report.findings.append(finding)
            if name not in BY_NAME:
                found.setdefault(name, []).append(finding)
            console.print(f"  {finding.measure}: {finding.value:,.3f} {finding.unit} {finding.note}")
    if options.docs and found:
        write_figures(options.docs, found, BENCHMARKS, time.strftime("%Y-%m-%d"), options.rounds)
    report.show(console)
    console.print(f"Saved in {report.save(options.save)}")


if __name__ == "__main__":
    main()
