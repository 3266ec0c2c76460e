"""Quotas of slots: max-min fair by weight, over what teams hold."""

from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane_scheduler.dispatch.slots import Quotas

WEIGHTS = {"a": 1.0, "b": 1.0, "c": 2.0, "d": 4.0}
counts = st.dictionaries(st.sampled_from(sorted(WEIGHTS)), st.integers(1, 50))


def quotas(slots: int, held: dict[str, int], wanted: dict[str, int]) -> dict[str, int]:
    found = Quotas(slots, held, wanted, WEIGHTS.__getitem__)
    return {team: found[team] for team in wanted}


def test_equal_teams_that_hold_nothing_have_equal_parts() -> None:
    assert quotas(10, {}, {"a": 50, "b": 50}) == {"a": 5, "b": 5}


def test_what_a_team_holds_is_part_of_its_share() -> None:
    assert quotas(12, {"a": 4}, {"a": 50, "b": 50, "c": 50}) == {"a": 0, "b": 3, "c": 6}


def test_a_share_that_one_team_cannot_use_goes_to_others() -> None:
    assert quotas(12, {}, {"a": 2, "b": 50, "d": 50}) == {"a": 2, "b": 2, "d": 8}


def test_with_enough_slots_every_team_has_its_demand() -> None:
    assert quotas(100, {"b": 3}, {"a": 20, "b": 30, "c": 40}) == {"a": 20, "b": 30, "c": 40}


def test_a_team_without_demand_has_no_quota() -> None:
    assert Quotas(10, {"a": 2}, {"b": 9}, WEIGHTS.__getitem__)["a"] == 0


def test_a_taken_slot_reduces_the_quota() -> None:
    found = Quotas(10, {}, {"a": 50, "b": 50}, WEIGHTS.__getitem__)
    found["a"] -= 3

    assert (found["a"], found["b"]) == (2, 5)


def test_on_overuse_only_teams_below_their_share_have_quota() -> None:
    assert quotas(4, {"a": 9}, {"a": 5, "b": 5}) == {"a": 0, "b": 2}


@given(slots=st.integers(1, 100), held=counts, wanted=counts)
def test_nobody_has_less_for_its_weight_than_another_has_but_by_its_own_wish(
    slots: int, held: dict[str, int], wanted: dict[str, int]
) -> None:
    found = quotas(slots, held, wanted)

    for team, quota in found.items():
        assert 0 <= quota <= wanted[team]
        if quota < wanted[team]:
            mine = (held.get(team, 0) + quota) / WEIGHTS[team]
            for other, theirs in found.items():
                if theirs:
                    assert (held.get(other, 0) + theirs - 1) / WEIGHTS[other] <= mine + 1e-6


@pytest.mark.parametrize("teams", [3, 100])
def test_quotas_of_equal_teams_are_their_part_rounded_up(teams: int) -> None:
    wanted = {f"team{n}": 10 for n in range(teams)}
    found = Quotas(7, {}, wanted, lambda _: 1.0)

    assert {found[team] for team in wanted} == {ceil(7 / teams)}
