"""What is said to go ahead of a job is what the scheduler's fair order puts before it."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.run import RunRef
from fairlane.why.queues import RunQueue, ahead_of, share_of
from fairlane_scheduler.dispatch.fairness import LaneShares

OWN = RunRef("a", "r0")
REFS = [OWN, *(RunRef(team, f"r{number}") for team in "abc" for number in (1, 2))]
WEIGHTS = st.fixed_dictionaries({team: st.sampled_from([0.5, 1.0, 2.0, 3.0]) for team in "abc"})


@given(
    queued=st.fixed_dictionaries({ref: st.integers(0, 40) for ref in REFS[1:]}),
    own=st.integers(1, 40),
    priorities=st.fixed_dictionaries({ref: st.integers(0, 1) for ref in REFS if ref.team == "a"}),
    weights=WEIGHTS,
    data=st.data(),
)
def test_the_estimated_order_matches_the_fair_order_except_for_turns(
    queued: dict[RunRef, int],
    own: int,
    priorities: dict[RunRef, int],
    weights: dict[str, float],
    data: st.DataObject,
) -> None:
    before = data.draw(st.integers(0, own - 1))
    waiting = {OWN: own} | {ref: count for ref, count in queued.items() if count}
    queues = [RunQueue(ref, count, 0) for ref, count in waiting.items()]
    said = ahead_of(OWN, before, queues, weights, priorities)
    real = _place(waiting, priorities, weights, before)
    # A turn of each equal run, and of each other team what its weight gives it beside one of ours, rounded.
    turns = sum(ref.team == "a" for ref in waiting) - 1
    spare = sum(
        (turns + 1) * weights[team] / weights["a"] + 2 for team in {ref.team for ref in waiting} - {"a"}
    )
    assert abs(said - real) <= turns + spare


@given(weights=WEIGHTS, teams=st.sets(st.sampled_from("abc")))
def test_the_shares_of_all_teams_that_wait_are_one(weights: dict[str, float], teams: set[str]) -> None:
    queues = [RunQueue(RunRef(team, "r1"), 5, 0) for team in teams]
    assert share_of("a", queues, weights) <= 1
    if teams:
        assert abs(sum(share_of(team, queues, weights) for team in teams) - 1) < 1e-9


def _place(
    waiting: Mapping[RunRef, int],
    priorities: Mapping[RunRef, int],
    weights: Mapping[str, float],
    before: int,
) -> int:
    """How many permits an idle lane grants before the one that has ``before`` of its own run before it."""
    shares = LaneShares(weights.__getitem__)
    by_team: dict[str, dict[RunRef, int]] = {}
    for ref, count in waiting.items():
        by_team.setdefault(ref.team, {})[ref] = count
    shares.arrive(by_team)
    offers = shares.order(by_team, lambda ref: priorities.get(ref, 0), sum(waiting.values()))
    ahead = own = 0
    for ref, count, *_ in offers:
        if ref == OWN and own + count > before:
            return ahead + before - own
        own += count if ref == OWN else 0
        ahead += count
    raise AssertionError("it is never granted")
