"""Reads teams for their page: each team's share of its lanes, its use of them, and its budgets."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Any

from fairlane.cli.output import fields_of
from fairlane.client.deployment import Deployment
from fairlane.config.sections import TeamSettings
from fairlane.model.run import RunRef
from fairlane.store.run_queries import RunProgress
from fairlane.store.write.budgets import Allowance

WATCHED = 300
"""Most active runs that are counted; beyond it, the last by name are left out."""

USE_MS = 60_000


class Use:
    """Calls that ended in the last minute, by lane and team, as far as `look` was called meanwhile."""

    def __init__(self) -> None:
        self._before: dict[RunRef, Mapping[str, int]] | None = None
        self._unwatched = frozenset[RunRef]()
        self._ended: deque[tuple[int, Counter[tuple[str, str]]]] = deque()

    @property
    def watched(self) -> set[RunRef]:
        """The runs of the last `look`."""
        return set(self._before or ())

    def look(
        self,
        ended: Mapping[RunRef, Mapping[str, int]],
        now_ms: int,
        active: Iterable[RunRef] = (),
    ) -> None:
        """Record how many jobs of each run have ended by now, by lane. ``active``: all runs, also others."""
        if self._ended and now_ms - self._ended[-1][0] > USE_MS:
            self._before = None
        counts = Counter[tuple[str, str]]()
        for ref, lanes in ended.items():
            unknown = self._before is None or ref in self._unwatched
            before = lanes if unknown else (self._before or {}).get(ref, {})
            for lane, count in lanes.items():
                counts[lane, ref.team] += max(0, count - before.get(lane, 0))
        self._before, self._unwatched = dict(ended), frozenset(active).difference(ended)
        self._ended.append((now_ms, counts))
        while self._ended and self._ended[0][0] <= now_ms - USE_MS:
            self._ended.popleft()

    def of(self) -> Counter[tuple[str, str]]:
        """Calls by (lane, team)."""
        return sum((counts for _, counts in self._ended), Counter[tuple[str, str]]())


class TeamBoard:
    """Reads teams. What it returns is ready for JSON; times are server milliseconds. Threads may share it."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment, self._use, self._lock = deployment, Use(), Lock()

    def all(self) -> dict[str, Any]:
        """Every team, with the lanes that it uses and its budgets."""
        here, reader = self._deployment, self._deployment.reader
        now_ms, lanes = here.now_ms(), here.lanes.names()
        active = here.run_states.active()
        progress = here.run_states.of(sorted(active, key=str)[:WATCHED])
        waiting, in_flight = reader.queued_by_team(), reader.in_flight(lanes)
        with self._lock:
            watched = sorted({*progress, *self._use.watched}, key=str)
            self._use.look(reader.ended(watched), now_ms, active)
            use = self._use.of()
        budgeted = here.budgets.teams()
        named = {*reader.teams(), *here.settings.teams, *budgeted, *(ref.team for ref in active)}
        teams = sorted(named)
        claims, allowances = here.shares(teams), here.budgets.of(budgeted, now_ms)
        shares = {lane: _shares(lane, claims, waiting.get(lane, {}), in_flight[lane], use) for lane in lanes}
        return {
            "now_ms": now_ms,
            "teams": [
                {
                    "team": team,
                    "weight": claims[team].weight,
                    "kept_percent": 100 - claims[team].lendable_percent,
                    "max_percent": claims[team].max_percent,
                    **_runs_of(team, active, progress),
                    "lanes": [found | {"lane": lane} for lane in lanes if (found := shares[lane].get(team))],
                    "budgets": [_budget(each) for each in allowances if each.team == team],
                }
                for team in teams
            ],
        }


def _shares(
    lane: str,
    claims: Mapping[str, TeamSettings],
    waiting: Mapping[str, int],
    in_flight: Mapping[str, int],
    use: Mapping[tuple[str, str], int],
) -> dict[str, dict[str, Any]]:
    """For teams with calls or demand on the lane: each team's share by weight, and its use."""
    wants = [team for team in claims if waiting.get(team) or in_flight.get(team) or use.get((lane, team))]
    weights = sum(claims[team].weight for team in wants)
    ended = sum(use.get((lane, team), 0) for team in wants)
    return {
        team: {
            "share": claims[team].weight / weights,
            "use": use.get((lane, team), 0) / ended if ended else None,
            "ended": use.get((lane, team), 0),
            "in_flight": in_flight.get(team, 0),
            "waiting": waiting.get(team, 0),
        }
        for team in wants
    }


def _runs_of(team: str, active: Iterable[RunRef], progress: Mapping[RunRef, RunProgress]) -> dict[str, int]:
    own: Sequence[RunRef] = [ref for ref in active if ref.team == team]
    seen = [progress[ref] for ref in own if ref in progress]
    return {
        "active_runs": len(own),
        "paused_runs": sum(each.paused for each in seen),
        "waiting": sum(each.waiting for each in seen),
        "in_flight": sum(each.in_flight for each in seen),
    }


def _budget(allowance: Allowance) -> dict[str, Any]:
    own = fields_of(allowance, "lane", "per", "unit", "most", "used", "share", "state", "name")
    return own | {"end": allowance.end_in_words}
