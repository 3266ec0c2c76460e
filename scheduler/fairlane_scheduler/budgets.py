"""Keeps teams' budgets as the configuration states them, and tells the log when one is nearly or wholly
used.
"""

from __future__ import annotations

from fairlane.events import Event
from fairlane.logs import get_logger
from fairlane.settings import Settings
from fairlane.store.budgets import Allowance, Budgets

log = get_logger("budgets")


class BudgetWatch:
    """Looks at every budget now and then; what each one allows is decided in `lib/allowance.lua`."""

    def __init__(self, budgets: Budgets, settings: Settings) -> None:
        self._budgets, self._settings = budgets, settings

    def reload(self) -> None:
        """Put what the configuration says of teams into Redis, where it says something new."""
        stated = {name: team.budgets for name, team in self._settings.teams.items()}
        for team in {*stated, *self._budgets.teams()}:
            self._budgets.configure(team, stated.get(team, ()))

    def tick(self, server_ms: int) -> None:
        """Warn of budgets that are at 80 %, and of those for whose end jobs wait, once a period each."""
        for allowance in self._budgets.of(self._budgets.teams(), server_ms):
            if allowance.state != "open" and self._budgets.tell(allowance):
                log.warning(_EVENTS[allowance.state], **_fields(allowance))


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
