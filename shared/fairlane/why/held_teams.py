"""Teams whose jobs wait on a lane for the end of a budget, whatever the lane itself would allow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fairlane.store.connection.connect import RedisClient, if_allowed
from fairlane.store.keys import Keys
from fairlane.store.write.budgets import ALL_LANES, Allowance, Budgets
from fairlane.why.queues import RunQueue
from fairlane.why.reasons import Reason
from fairlane.why.waiting import HeldTeam


def held_teams(
    redis: RedisClient, keys: Keys, lane: str, queues: Sequence[RunQueue], now_ms: int
) -> tuple[HeldTeam, ...]:
    """Those whose next job was found to exceed a budget in its present period, by name."""
    queued = Counter[str]()
    for queue in queues:
        if not queue.paused:
            queued[queue.ref.team] += queue.queued
    teams = sorted(team for team, count in queued.items() if count)
    budgets: list[Allowance] = if_allowed(lambda: Budgets(redis, keys).of(teams, now_ms), [])
    last: dict[str, Allowance] = {}
    for each in budgets:
        if each.held and each.lane in (ALL_LANES, lane):
            before = last.get(each.team)
            last[each.team] = max(before or each, each, key=lambda found: found.period.end_ms)
    return tuple(
        HeldTeam(team, queued[team], f"{each.name} is used up until {each.end_in_words}", each.period.end_ms)
        for team, each in last.items()
    )


def all_held(held: Sequence[HeldTeam], queued: int) -> Reason | None:
    """The reason of a lane where every team with jobs waits for a budget."""
    if not held or sum(team.queued for team in held) < queued:
        return None
    first = min(held, key=lambda team: team.until_ms)
    sentence = (
        f"team {first.team}: {first.sentence}" if len(held) == 1 else "budgets of its teams are used up"
    )
    return Reason("team_budget", sentence, first.until_ms)
