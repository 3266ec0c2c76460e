"""Calls of several teams' runs on one lane, for tests of scripts."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.model.job import Attempt
from fairlane.model.run import RunRef
from fairlane.store.write.permits import Grant, Offer
from tests.support.deployment import Deployment, attempts_of

LANE = "sim:fast"


def runs_of(
    d: Deployment, *teams: str, jobs: int = 100, tokens: int = 10, **limits: float | None
) -> list[RunRef]:
    """A run of each team, with jobs queued on the lane, which has these limits."""
    d.lane(LANE, **limits)
    refs = []
    for team in teams:
        ref = d.submit(team=team, run=f"{team}1", rows=jobs)
        d.feed(ref, jobs, LANE, tokens)
        refs.append(ref)
    return refs


def ask(d: Deployment, refs: Sequence[RunRef], most: int = 1) -> tuple[Grant, list[Attempt]]:
    """Permits for these runs in this order, claimed."""
    offers = [Offer(ref, most) for ref in refs]
    grant = d.ask(offers, LANE)
    attempts = attempts_of(grant, offers, LANE)
    for attempt in attempts:
        assert d.claim(attempt) is not None
    return grant, attempts
