"""The permits of a lane as the scheduler logged them, and a measure of whose turn each of them was.

A worker that stalls returns permits: nobody is charged for those, and their jobs get others. So a busy
machine changes the order of permits. What holds on any machine: no team is granted a permit while it is ahead
of its share of those that were granted and not returned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fairlane.core.events import Event
from tests.support.cluster import Cluster
from tests.support.shares import share_of

KNOWN_MS = 1000  # on a busy machine, within this time the scheduler hears of a returned permit


@dataclass(frozen=True, slots=True)
class Permit:
    """A permit of a lane; ``first``: its job has had none before. Times are Unix milliseconds."""

    at_ms: int
    team: str
    run: str
    first: bool
    returned_ms: int | None


def granted(deployment: Cluster, lane: str) -> list[Permit]:
    """The lane's permits in order."""
    returned = {
        _attempt(line): at_ms(line)
        for line in deployment.logged(Event.RELEASED, lane=lane)
        if line["wire_ms"] is None
    }
    permits, seen = list[Permit](), set[tuple[str, int]]()
    for line in sorted(deployment.logged(Event.ACQUIRED, lane=lane), key=lambda line: line["timestamp"]):
        job = line["run"], line["job"]
        permits.append(
            Permit(at_ms(line), line["team"], line["run"], job not in seen, returned.get(_attempt(line)))
        )
        seen.add(job)
    return permits


def teams_of(permits: Sequence[Permit]) -> list[str]:
    return [each.team for each in permits]


def kept(permits: Sequence[Permit]) -> list[Permit]:
    """Those that their workers used."""
    return [permit for permit in permits if permit.returned_ms is None]


def while_all_wait(permits: Sequence[Permit]) -> list[Permit]:
    """Up to the permit with which the last job of one of the teams has had its first."""
    last = {each.team: number for number, each in enumerate(permits) if each.first}
    return list(permits[: min(last.values()) + 1])


def furthest_ahead(
    permits: Sequence[Permit], weights: Mapping[str, float], begin: int = 0, end: int | None = None
) -> float:
    """How many permits a team was ahead of its share at most with a permit that it was granted.

    Judges the permits from ``begin`` to before ``end``; one before them counts when it is returned. The
    scheduler may have heard of the team's returned permits at once, and of others' within `KNOWN_MS`. A team
    may still have been owed what it returned within `KNOWN_MS` before.
    """
    judged = permits[begin:end]
    early = _Returns(permits, judged[0].at_ms - KNOWN_MS)
    late = _Returns(permits, judged[0].at_ms)
    had, most = Counter[str](), 0.0
    for permit in judged:
        had[permit.team] += 1
        own, others = early.until(permit.at_ms), late.until(permit.at_ms - KNOWN_MS)
        held = {team: had[team] - (own if team == permit.team else others)[team] for team in weights}
        most = max(most, held[permit.team] - share_of(permit.team, weights) * sum(held.values()))
    return most


class _Returns:
    """Counts what each team has returned up to a time that only advances."""

    def __init__(self, permits: Sequence[Permit], since_ms: int) -> None:
        times = ((permit.returned_ms, permit.team) for permit in permits if permit.returned_ms is not None)
        self._coming = sorted((each for each in times if each[0] > since_ms), reverse=True)
        self._counts = Counter[str]()

    def until(self, now_ms: int) -> Counter[str]:
        while self._coming and self._coming[-1][0] <= now_ms:
            self._counts[self._coming.pop()[1]] += 1
        return self._counts


def _attempt(line: dict[str, Any]) -> tuple[str, int, int]:
    return line["run"], line["job"], line["attempt"]


def at_ms(line: dict[str, Any]) -> int:
    """When a line was logged, in Unix milliseconds."""
    return round(datetime.fromisoformat(line["timestamp"]).timestamp() * 1000)
