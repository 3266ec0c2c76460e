"""The readers that all pages of one Flower process share."""

from __future__ import annotations

from dataclasses import dataclass

from fairlane.client.deployment import Deployment
from fairlane.flower.readings.item_page import ItemPage
from fairlane.flower.readings.lane_board import LaneBoard
from fairlane.flower.readings.run_list import RunList
from fairlane.flower.readings.run_page import RunPage
from fairlane.flower.readings.shared_reading import SharedReading
from fairlane.flower.readings.tallies import Tallies
from fairlane.flower.readings.team_board import TeamBoard


@dataclass(frozen=True, slots=True)
class Readers:
    """One reader for each page, made once by `installing`; ``show_text`` allows rows and outputs on pages."""

    deployment: Deployment
    readings: SharedReading
    lanes: LaneBoard
    runs: RunList
    run: RunPage
    item: ItemPage
    teams: TeamBoard
    show_text: bool

    @classmethod
    def of(cls, deployment: Deployment, *, show_text: bool) -> Readers:
        """Build the readers of one deployment."""
        tallies = Tallies(deployment)
        runs = RunList(deployment, tallies, show_text=show_text)
        return cls(
            deployment=deployment,
            readings=SharedReading(),
            lanes=LaneBoard(deployment, show_text=show_text),
            runs=runs,
            run=RunPage(deployment, runs, tallies, show_text=show_text),
            item=ItemPage(deployment, runs, show_text=show_text),
            teams=TeamBoard(deployment),
            show_text=show_text,
        )
