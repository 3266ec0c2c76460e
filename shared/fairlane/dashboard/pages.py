"""The pages: skeletons of HTML, which a script fills from `data` and keeps up to date."""

from __future__ import annotations

from fairlane.dashboard.guarded import Page


class LanesPage(Page):
    """All lanes."""

    def get(self) -> None:
        self.render("fairlane_lanes.html")


class LanePage(Page):
    """One lane, with its chart."""

    def get(self, lane: str) -> None:
        self.render("fairlane_lane.html", lane=lane)


class RunsPage(Page):
    """The latest runs."""

    def get(self) -> None:
        self.render("fairlane_runs.html", read_only=self.flower.options.read_only)


class RunPage(Page):
    """One run, with its buttons."""

    def get(self, team: str, run: str) -> None:
        self.render("fairlane_run.html", team=team, run=run, read_only=self.flower.options.read_only)


class ItemPage(Page):
    """One item of a run."""

    def get(self, team: str, run: str, item: str) -> None:
        self.render("fairlane_item.html", team=team, run=run, item=int(item))


class TeamsPage(Page):
    """All teams."""

    def get(self) -> None:
        self.render("fairlane_teams.html")
