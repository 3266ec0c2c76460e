"""Each constraint that the scripts of a lane name has its own words, and so has one of a later version."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import get_args

import pytest

from fairlane.store.write.lanes.lane_view import AXES, AxisView, Hold
from fairlane.why.queues import Cost, start_of
from fairlane.why.reasons import reason_of
from fairlane.why.waiting import Constraint, Eta
from tests.support.constraints import LANE_CONSTRAINTS
from tests.support.idle_lane import IDLE

LATER = "later"
"""A constraint that no script of this version names."""

UNKNOWN = (
    "name it in `Constraint` of why/waiting.py, with words in SHORT_WORDS and a sentence in why/reasons.py"
)


def sentence(reason: str) -> str:
    axes = {**IDLE.axes, **({reason: AxisView()} if reason in AXES else {})}
    found = reason_of(replace(IDLE, reason=reason, axes=axes, shut=None), 1, 9, led=True)
    if found is None:  # it shuts the lane, and the view says so
        found = reason_of(replace(IDLE, shut=Hold(reason), parked="no key"), 1, 9, led=True)
    assert found is not None
    assert found.constraint == reason
    return re.sub(re.escape(IDLE.lane), "LANE", found.sentence)


def test_every_constraint_of_the_scripts_is_one_that_why_answers() -> None:
    assert set(get_args(Constraint)) >= LANE_CONSTRAINTS, UNKNOWN


@pytest.mark.parametrize("reason", sorted(LANE_CONSTRAINTS))
def test_every_constraint_of_a_lane_has_a_sentence_of_its_own(reason: str) -> None:
    assert sentence(reason) not in {sentence(each) for each in {*LANE_CONSTRAINTS, LATER} - {reason}}, UNKNOWN


def test_a_constraint_of_a_later_version_is_named() -> None:
    assert replace(IDLE, reason=LATER).hold(1) == Hold(LATER)
    assert LATER in sentence(LATER)
    assert replace(IDLE, reason="").hold(1) is None


def test_a_day_whose_renewal_is_unknown_gives_no_time() -> None:
    day = AxisView(allowed=100, level=0, full=100)
    cost = Cost(0, 0)
    found = start_of(1, replace(IDLE, axes={**IDLE.axes, "day": day}), cost, 9)
    assert found == Eta(None, True)
    renews = replace(IDLE, axes={**IDLE.axes, "day": day._replace(renews_ms=IDLE.now_ms + 7)})
    assert start_of(1, renews, cost, 9).at_ms == IDLE.now_ms + 7


@pytest.mark.parametrize(
    ("lane", "limited", "said"),
    [("python:crm", 60, True), ("python:crm", 30, False), ("python:crm", 9, False), ("sim:fast", 60, False)],
)
@pytest.mark.parametrize("reason", ["requests", "window"])
def test_a_function_that_raises_as_often_as_it_returns_is_named(
    lane: str, limited: int, said: bool, reason: str
) -> None:
    view = replace(IDLE, lane=lane, limited=limited, succeeded=60 if limited > 9 else 0, reason=reason)
    for share in (1.0, 0.5):
        found = reason_of(view, 1, 9, led=True, share=share)
        assert found is not None
        assert ("where these are of single rows" in found.sentence) == said
