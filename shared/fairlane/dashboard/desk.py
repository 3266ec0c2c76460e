"""What the pages of one process share: where they read, and whether texts may be shown."""

from __future__ import annotations

from dataclasses import dataclass

from fairlane.dashboard.deployment import Deployment
from fairlane.dashboard.item_page import ItemPage
from fairlane.dashboard.lane_board import LaneBoard
from fairlane.dashboard.run_list import RunList
from fairlane.dashboard.run_page import RunPage
from fairlane.dashboard.shared_reading import SharedReading
from fairlane.dashboard.tallies import Tallies
from fairlane.dashboard.team_board import TeamBoard


@dataclass(frozen=True, slots=True)
class Desk:
    """Made once, by `installing`."""

    deployment: Deployment
    readings: SharedReading
    lanes: LaneBoard
    runs: RunList
    run: RunPage
    item: ItemPage
    teams: TeamBoard
    show_text: bool

    @classmethod
    def of(cls, deployment: Deployment, *, show_text: bool) -> Desk:
        """Everything, on one deployment."""
        tallies = Tallies(deployment.link)
        runs = RunList(deployment, tallies, show_text=show_text)
        return cls(
            deployment=deployment,
            readings=SharedReading(),
            lanes=LaneBoard(deployment),
            runs=runs,
            run=RunPage(deployment, runs, tallies, show_text=show_text),
            item=ItemPage(deployment, runs, show_text=show_text),
            teams=TeamBoard(deployment),
            show_text=show_text,
        )
