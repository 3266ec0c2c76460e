"""Finished runs expire in Redis, and are read from the archive as they were read before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fairlane.core.errors import FairlaneError
from tests.faults.deployment import KEPT_S, Deployment
from tests.faults.history import LOST, RunSeen
from tests.faults.runs import Watched
from tests.support.wait import wait_until

SHOWN = 3
LATE_S = 90.0
"""The scheduler looks once a minute for what names an expired run."""


def after_expiry(deployment: Deployment, runs: Sequence[RunSeen]) -> Iterator[str]:
    """What is wrong once the last of these finished runs should have expired."""
    pattern = f"{deployment.keys.prefix}run:*"

    def left() -> list[str]:
        deployment.mind()
        return sorted(key.decode() for key in deployment.redis.scan_iter(match=pattern, count=1000))

    try:
        wait_until(lambda: not left(), timeout=KEPT_S + LATE_S, interval=1.0)
    except AssertionError:
        yield f"{len(left())} keys of runs did not expire: {', '.join(left()[:SHOWN])}"
    for seen in runs:
        if seen.state == LOST or seen.error is not None:
            continue
        try:
            now = Watched(deployment.client_of(seen.team).run(seen.id), seen).read()
        except FairlaneError as error:
            yield f"{seen.name} {seen.id}: {type(error).__name__}: {error}"
            continue
        if (now.records, now.sessions, now.error) != (seen.records, seen.sessions, None):
            yield f"{seen.name} {seen.id} has {len(now.records)} of {len(seen.records)} records: {now.error}"
