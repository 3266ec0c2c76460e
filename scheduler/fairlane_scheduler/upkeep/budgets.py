"""Keeps teams' budgets as configured, and logs when one is nearly or fully used."""

from collections.abc import Callable, Mapping, Sequence

from redis.exceptions import ResponseError

from fairlane.config.sections import Budget, TeamSettings
from fairlane.core.events import Event
from fairlane.store.write.budgets import Allowance, Budgets
from fairlane.telemetry.logs import get_logger

log = get_logger("budgets")

IDLE_MS = 5000  # between two looks while no team has a budget


class BudgetWatch:
    """Checks budgets of about a hundred teams a tick, in turn, so that many teams do not slow a tick.

    Scripts decide what a budget allows: `lib/team/budget.lua`.
    """

    def __init__(
        self,
        budgets: Budgets,
        teams: Mapping[str, TeamSettings],
        canonical_lane: Callable[[str], str] = lambda lane: lane,
    ) -> None:
        """``canonical_lane`` maps a lane's name to the lane that carries its calls."""
        self._budgets = budgets
        self._teams = teams
        self._canonical_lane = canonical_lane
        self._cursor = self._due_ms = 0
        self._by_team: dict[str, list[Allowance]] = {}
        self._seen: set[str] = set()

    @property
    def latest(self) -> list[Allowance]:
        """All budgets, as of the last check."""
        return [allowance for team in sorted(self._by_team) for allowance in self._by_team[team]]

    def reload(self) -> None:
        """Write budgets to Redis that the configuration has changed."""
        budgets: dict[str, Sequence[Budget]] = dict.fromkeys(self._budgets.teams(), ())
        for name, team in self._teams.items():
            budgets[name] = [
                each.model_copy(update={"lane": self._canonical_lane(each.lane)}) for each in team.budgets
            ]
        self._budgets.configure(budgets)
        self._cursor, self._due_ms, self._seen = 0, 0, set()

    def tick(self, server_ms: int) -> None:
        """Log budgets that are 80 % used, and used-up budgets that delay jobs; each once a period."""
        if server_ms < self._due_ms:
            return
        self._cursor, teams = self._budgets.some_teams(self._cursor)
        try:
            found = self._budgets.of(teams, server_ms)
        except ResponseError:
            teams = self._budgets.sound(teams)
            found = self._budgets.of(teams, server_ms)
        news = [allowance for allowance in found if allowance.is_news]
        for allowance in news:
            log.warning(_EVENTS[allowance.state], **_fields(allowance))
        if news:
            self._budgets.note_logged(news)
        self._remember(teams, found)
        if not (self._cursor or self._by_team):
            self._due_ms = server_ms + IDLE_MS

    def _remember(self, teams: list[str], found: list[Allowance]) -> None:
        self._seen |= set(teams)
        self._by_team |= {team: [] for team in teams}
        for allowance in found:
            self._by_team[allowance.team].append(allowance)
        if self._cursor == 0:  # one pass over all teams is complete: drop teams without a budget
            self._by_team = {team: self._by_team[team] for team in self._seen}
            self._seen = set()


_EVENTS = {"nearly_used": Event.BUDGET_NEARLY_USED, "used_up": Event.BUDGET_USED_UP}


def _fields(allowance: Allowance) -> dict[str, object]:
    return {
        "team": allowance.team,
        "lane": allowance.lane,
        "per": allowance.per,
        "unit": allowance.unit,
        "used": round(allowance.used, 9),
        "most": allowance.most,
        "until": allowance.end_in_words,
    }
