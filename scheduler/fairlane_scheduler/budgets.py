"""Keeps teams' budgets as the configuration states them, and tells the log when one is nearly or wholly
used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairlane.events import Event
from fairlane.logs import get_logger
from fairlane.settings import Budget, Settings
from fairlane.store.budgets import Allowance, Budgets

log = get_logger("budgets")


class BudgetWatch:
    """Looks at the budgets of about a hundred teams a tick, in turn: a thousand cost no more.

    What each one allows is decided in `lib/allowance.lua`.
    """

    def __init__(
        self, budgets: Budgets, settings: Settings, carrier: Callable[[str], str] = lambda lane: lane
    ) -> None:
        """``carrier`` tells on which lane the calls of a lane of some name go."""
        self._budgets, self._settings, self._carrier = budgets, settings, carrier
        self._cursor = 0
        self._standing: dict[str, list[Allowance]] = {}
        self._round: set[str] = set()

    @property
    def latest(self) -> list[Allowance]:
        """All budgets as they stood when they were looked at last."""
        return [allowance for team in sorted(self._standing) for allowance in self._standing[team]]

    def reload(self) -> None:
        """Put what the configuration says of teams into Redis, where it says something new."""
        budgets: dict[str, Sequence[Budget]] = dict.fromkeys(self._budgets.teams(), ())
        for name, team in self._settings.teams.items():
            budgets[name] = [
                each.model_copy(update={"lane": self._carrier(each.lane)}) for each in team.budgets
            ]
        self._budgets.configure(budgets)
        self._cursor, self._round = 0, set()

    def tick(self, server_ms: int) -> None:
        """Warn of budgets that are at 80 %, and of those for whose end jobs wait, once a period each."""
        self._cursor, teams = self._budgets.some_teams(self._cursor)
        found = self._budgets.of(teams, server_ms)
        news = [allowance for allowance in found if allowance.is_news]
        for allowance in news:
            log.warning(_EVENTS[allowance.state], **_fields(allowance))
        if news:
            self._budgets.note_told(news)
        self._remember(teams, found)

    def _remember(self, teams: list[str], found: list[Allowance]) -> None:
        self._round |= set(teams)
        self._standing |= {team: [] for team in teams}
        for allowance in found:
            self._standing[allowance.team].append(allowance)
        if self._cursor == 0:  # all have been looked at: who was not seen has no budget any more
            self._standing = {team: self._standing[team] for team in self._round}
            self._round = set()


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
