"""Start-time fair queueing: weights, no credit for idleness, turns and priorities of runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import cycle, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.run import RunRef
from fairlane.store.write.permits import Offer
from fairlane_scheduler.dispatch import fairness
from fairlane_scheduler.dispatch.fairness import LaneShares, TeamThrottle


class Lane:
    """One lane's shares, granted as a dispatcher grants."""

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self.weights = weights or {}
        self.shares = LaneShares(lambda team: self.weights.get(team, 1.0))
        self.priorities: dict[RunRef, int] = {}
        self.costs: dict[str, float] = {}
        self.waited: set[str] = set()
        self.interactive: list[RunRef] = []
        self.most: dict[str, int] = {}
        self.now_ms = 0

    def order(self, queued: Mapping[RunRef, int], count: int) -> list[Offer]:
        """Asks as a dispatcher does, after the arrival of every team."""
        waiting: dict[str, dict[RunRef, int]] = {}
        for ref, jobs in queued.items():
            if jobs:
                waiting.setdefault(ref.team, {})[ref] = jobs
        self.shares.arrive(team for team in waiting if team not in self.waited)
        self.waited = set(waiting)
        urgent = [ref for ref in self.interactive if queued.get(ref)]
        most_of = self.most.__getitem__ if self.most else None
        return self.shares.order(
            waiting, lambda ref: self.priorities.get(ref, 0), count, self.now_ms, urgent, most_of
        )

    def grant(self, queued: dict[RunRef, int], count: int, batch: int = 1) -> list[RunRef]:
        """Grant ``count`` permits, ``batch`` at a time; takes them from ``queued``."""
        granted: list[RunRef] = []
        while len(granted) < count and any(queued.values()):
            offers = self.order(queued, batch)
            for offer in offers:
                for _ in range(offer.most):
                    self.shares.charge(offer.ref, self.costs.get(offer.ref.team, 1.0), self.now_ms)
                    queued[offer.ref] -= 1
                    granted.append(offer.ref)
        return granted


def run(team: str, name: str = "r") -> RunRef:
    return RunRef(team, name)


def by_team(granted: list[RunRef]) -> Counter[str]:
    return Counter(ref.team for ref in granted)


def test_equal_teams_alternate() -> None:
    granted = Lane().grant({run("a"): 50, run("b"): 50}, 20)

    assert [ref.team for ref in granted] == ["a", "b"] * 10


@pytest.mark.parametrize("batch", [1, 8, 200])
def test_permits_follow_the_weights_within_two_percent(batch: int) -> None:
    queued = {run("a"): 5000, run("b"): 5000, run("c"): 5000}
    granted = Lane({"a": 1, "b": 2, "c": 5}).grant(queued, 1000, batch)[:1000]

    counts = by_team(granted)
    for team, weight in (("a", 1), ("b", 2), ("c", 5)):
        assert counts[team] == pytest.approx(1000 * weight / 8, rel=0.02)


def test_an_idle_team_gets_no_credit() -> None:
    lane = Lane()
    lane.grant({run("busy"): 500}, 500)

    granted = lane.grant({run("busy"): 100, run("idle"): 100}, 40)

    assert by_team(granted) == {"busy": 20, "idle": 20}


def test_a_team_that_pauses_owes_nothing_and_is_owed_nothing() -> None:
    lane = Lane()
    lane.grant({run("a"): 10, run("b"): 10}, 20)
    lane.grant({run("a"): 300}, 300)

    assert by_team(lane.grant({run("a"): 50, run("b"): 50}, 50)) == {"a": 25, "b": 25}


def test_a_lone_team_gets_everything() -> None:
    lane = Lane({"a": 0.001})

    assert by_team(lane.grant({run("a"): 300}, 300, batch=200)) == {"a": 300}


def test_the_share_of_a_team_that_has_nothing_left_is_lent() -> None:
    granted = Lane({"a": 9}).grant({run("a"): 5, run("b"): 100}, 50, batch=10)

    assert by_team(granted) == {"a": 5, "b": 45}


def test_runs_of_a_team_take_turns() -> None:
    queued = {run("a", "r1"): 9, run("a", "r2"): 9, run("a", "r3"): 9}

    granted = Lane().grant(queued, 9)

    assert [ref.run for ref in granted] == ["r1", "r2", "r3"] * 3


def test_turns_go_on_where_the_last_batch_ended() -> None:
    queued = {run("a", "r1"): 50, run("a", "r2"): 50, run("a", "r3"): 50}

    granted = Lane().grant(queued, 40, batch=4)

    counts = Counter(ref.run for ref in granted)
    assert max(counts.values()) - min(counts.values()) <= 1


def test_a_small_run_waits_for_one_turn_of_a_huge_one() -> None:
    lane = Lane()
    queued = {run("a", "huge"): 10**6}
    lane.grant(queued, 300, batch=100)
    queued[run("a", "small")] = 2

    granted = lane.grant(queued, 5)

    assert [ref.run for ref in granted] == ["huge", "small", "huge", "small", "huge"]


def test_a_higher_priority_goes_first_until_nothing_of_it_is_left() -> None:
    lane = Lane()
    lane.priorities = {run("a", "high"): 5, run("a", "low"): -5}
    queued = {run("a", "low"): 10, run("a", "usual"): 3, run("a", "high"): 4}

    granted = lane.grant(queued, 12, batch=5)

    assert [ref.run for ref in granted][:12] == ["high"] * 4 + ["usual"] * 3 + ["low"] * 5


def test_an_offer_never_exceeds_what_is_queued() -> None:
    offers = Lane().order({run("a"): 3, run("b"): 2}, 100)

    assert sum(offer.most for offer in offers if offer.ref.team == "a") == 3
    assert sum(offer.most for offer in offers if offer.ref.team == "b") == 2


def test_neighbouring_permits_of_a_run_are_one_offer() -> None:
    assert [offer.most for offer in Lane().order({run("a"): 30}, 20)] == [20]


def test_offers_without_a_grant_cost_nothing() -> None:
    lane = Lane()
    for _ in range(50):
        lane.order({run("a"): 10, run("b"): 10}, 8)

    assert [ref.team for ref in lane.grant({run("a"): 4, run("b"): 4}, 8)] == ["a", "b"] * 4


def test_teams_that_are_long_idle_are_forgotten() -> None:
    lane = Lane()
    for number in range(5 * fairness.TEAMS_KEPT):
        lane.grant({run(f"team{number}"): 1, run("steady"): 3}, 4)

    assert len(lane.shares._teams) <= 2 * fairness.TEAMS_KEPT


def test_a_decision_looks_at_no_more_teams_than_it_serves() -> None:
    lane, asked = Lane(), Counter[RunRef]()
    queued = {run(f"team{n}"): 1000 for n in range(2000)}
    lane.order(queued, 1)
    waiting = {ref.team: {ref: jobs} for ref, jobs in queued.items()}

    def priority(ref: RunRef) -> int:
        asked[ref] += 1
        return 0

    for _ in range(10):
        for offer in lane.shares.order(waiting, priority, 5):
            lane.shares.charge(offer.ref, 1.0)

    assert len(asked) <= 50


def test_a_low_priority_has_its_turn_once_it_has_waited_long_enough() -> None:
    lane = Lane()
    lane.priorities = {run("a", "high"): 50, run("a", "low"): -50}
    queued = {run("a", "high"): 10**6, run("a", "low"): 5}

    assert {ref.run for ref in lane.grant(queued, 50)} == {"high"}
    lane.now_ms += 101_000
    assert "low" in [ref.run for ref in lane.grant(queued, 2)]


def test_an_interactive_run_is_served_next_but_not_twice_before_others() -> None:
    lane = Lane()
    queued = {run(f"team{n}"): 100 for n in range(50)} | {run("visitor", "now"): 10}
    lane.grant({ref: jobs for ref, jobs in queued.items() if ref.team != "visitor"}, 200)
    lane.interactive = [run("visitor", "now")]

    granted = [ref.team for ref in lane.grant(queued, 8)]

    assert granted[0] == "visitor"
    assert ("visitor", "visitor") not in pairwise(granted)


@pytest.mark.parametrize("weight", [0.25, 1, 4])
def test_a_team_with_only_interactive_runs_starves_no_other(weight: float) -> None:
    lane = Lane({"greedy": weight})
    queued = {run(f"team{n}"): 1000 for n in range(9)} | {run("greedy", "now"): 1000}
    lane.interactive = [run("greedy", "now")]

    counts = by_team(lane.grant(queued, 1000))

    assert counts["greedy"] <= 1000 * weight / (9 + weight) + fairness.INTERACTIVE_AHEAD + 1


teams = st.dictionaries(st.sampled_from("abcdef"), st.floats(0.1, 100), min_size=1)


@given(weights=teams, batch=st.integers(1, 50), data=st.data())
def test_no_team_that_waits_falls_behind_its_share_by_more_than_one_permit_a_team(
    weights: dict[str, float], batch: int, data: st.DataObject
) -> None:
    lane = Lane(weights)
    granted = lane.grant({run(team): 10_000 for team in weights}, 400, batch)

    total = sum(weights.values())
    upto = data.draw(st.integers(1, len(granted)), label="after so many permits")
    counts = by_team(granted[:upto])
    for team, weight in weights.items():
        assert counts[team] >= upto * weight / total - len(weights)


@given(
    queued=st.dictionaries(
        st.builds(RunRef, st.sampled_from("abc"), st.sampled_from(["r1", "r2", "r3"])), st.integers(1, 9)
    ),
    count=st.integers(1, 40),
    priorities=st.lists(st.integers(-2, 2), min_size=9, max_size=9),
)
def test_an_order_is_as_long_as_it_can_be_and_offers_nothing_twice(
    queued: dict[RunRef, int], count: int, priorities: list[int]
) -> None:
    lane = Lane()
    known = dict(zip(sorted(queued, key=str), priorities, strict=False))

    lane.priorities = known
    offers = lane.order(queued, count)

    offered = Counter[RunRef]()
    for offer in offers:
        offered[offer.ref] += offer.most
    assert offered.total() == min(count, sum(queued.values()))
    assert all(offered[ref] <= jobs for ref, jobs in queued.items())


def test_teams_get_equal_shares_whatever_their_jobs_cost() -> None:
    lane = Lane()
    lane.costs = {"heavy": 5.0, "light": 1.0}
    granted = lane.grant({run("heavy"): 1000, run("light"): 1000}, 600, batch=10)

    counts = by_team(granted)
    assert counts["light"] / counts["heavy"] == pytest.approx(5, rel=0.05)


def test_a_team_pays_later_for_what_its_calls_took_beyond_their_charge() -> None:
    lane = Lane()
    lane.grant({run("a"): 10, run("b"): 10}, 20)
    lane.shares.correct("a", 4.0)

    assert by_team(lane.grant({run("a"): 50, run("b"): 50}, 12)) == {"a": 4, "b": 8}


@given(prices=st.lists(st.integers(1, 4), min_size=1, max_size=12), late=st.integers(1, 8))
def test_a_team_that_waits_gets_back_what_it_was_charged_too_much_however_late_that_is_reported(
    prices: list[int], late: int
) -> None:
    lane = Lane()
    queued = {run("dear"): 1000, run("fair"): 1000}
    owed: dict[int, float] = {}
    price, dear = cycle(prices), 0
    for number in range(600):
        lane.shares.correct("dear", owed.pop(number, 0.0))
        lane.costs["dear"] = next(price)
        if by_team(lane.grant(queued, 1))["dear"]:
            owed[number + late] = 1 - lane.costs["dear"]
            dear += 1

    assert abs(dear - 300) <= 3 * late + 3


def test_what_a_lone_team_gets_back_is_no_credit_against_one_that_comes() -> None:
    lane, dear, at_once = Lane(), 3.0, 10
    queued = {run("alone"): 2000}
    for _ in range(100):
        lane.costs = {"alone": dear}
        lane.grant(queued, at_once)
        lane.shares.correct("alone", at_once * (1 - dear))
    lane.costs = {}
    queued[run("comes")] = 1000

    assert by_team(lane.grant(queued, 60))["comes"] >= 30 - at_once * (dear - 1) / 2


def test_what_a_team_gets_back_while_nothing_of_it_waits_is_no_credit() -> None:
    lane = Lane()
    lane.grant({run("a"): 10, run("b"): 10}, 20)
    lane.grant({run("b"): 1}, 1)
    lane.shares.correct("a", -9.0)

    assert by_team(lane.grant({run("a"): 50, run("b"): 50}, 20))["a"] <= 11


def test_no_correction_is_worth_more_than_what_a_team_can_be_owed() -> None:
    lane = Lane()
    lane.grant({run("a"): 10, run("b"): 10}, 20)
    lane.shares.correct("a", -1000.0)

    assert by_team(lane.grant({run("a"): 500, run("b"): 500}, 200))["a"] <= 100 + fairness.BEHIND / 2 + 1


def test_nobody_is_offered_more_than_may_be_and_who_may_have_nothing_keeps_its_turn() -> None:
    lane = Lane()
    queued = {run("a"): 50, run("b"): 50, run("c"): 50}
    lane.most = {"a": 0, "b": 2, "c": 3}

    assert by_team(lane.grant(queued, 5, batch=5)) == {"b": 2, "c": 3}
    lane.most = {}
    assert by_team(lane.grant(queued, 10)) == {"a": 5, "b": 3, "c": 2}


def test_a_team_that_was_long_offered_nothing_is_owed_no_more_than_its_bound() -> None:
    lane = Lane()
    queued = {run("a"): 1000, run("b"): 1000}
    lane.most = {"a": 0, "b": 1000}
    lane.grant(queued, 500, batch=10)
    lane.most = {}

    assert by_team(lane.grant(queued, 200, batch=200))["a"] <= 100 + fairness.BEHIND / 2 + 1


def test_an_interactive_run_of_a_team_without_quota_delays_no_other() -> None:
    lane = Lane()
    lane.interactive = [run("full", "now")]
    lane.most = {"full": 0, "b": 5, "c": 5}

    offers = lane.order({run("full", "now"): 9, run("b"): 9, run("c"): 9}, 10)

    assert Counter(offer.ref.team for offer in offers for _ in range(offer.most)) == {"b": 5, "c": 5}


def test_places_in_the_order_do_not_pile_up() -> None:
    lane = Lane()
    queued = {run(f"team{n}"): 1000 for n in range(100)}
    for _ in range(50):
        lane.grant(queued, 20, batch=20)

    assert len(lane.shares._heap) <= 100


class PlainTurns:
    """Turns of one team's runs as the documentation states them: every run is looked at for every permit."""

    def __init__(self) -> None:
        self.since: dict[RunRef, tuple[int, int]] = {}
        self.turns = 0

    def turn(self) -> int:
        self.turns += 1
        return self.turns

    def order(
        self, waiting: Mapping[RunRef, int], priorities: Mapping[RunRef, int], count: int, now_ms: int
    ) -> list[RunRef]:
        self.since = {ref: self.since.get(ref) or (now_ms, self.turn()) for ref in waiting}
        since, left, picks = dict(self.since), dict(waiting), list[RunRef]()
        while len(picks) < count and any(left.values()):
            ref = min(
                (ref for ref in left if left[ref]),
                key=lambda ref: (since[ref][0] - 1000 * priorities[ref], since[ref][1]),
            )
            picks.append(ref)
            left[ref] -= 1
            since[ref] = now_ms, self.turn()
        return picks

    def served(self, ref: RunRef, now_ms: int) -> None:
        self.since[ref] = now_ms, self.turn()


@given(
    priorities=st.lists(st.integers(-2, 2), min_size=8, max_size=8),
    steps=st.lists(
        st.tuples(
            st.integers(0, 3000),
            st.dictionaries(st.integers(0, 7), st.integers(0, 3), max_size=4),
            st.integers(1, 6),
            st.integers(0, 6),
        ),
        max_size=30,
    ),
)
def test_the_highest_priority_goes_first_then_who_has_waited_longest(
    priorities: list[int], steps: list[tuple[int, dict[int, int], int, int]]
) -> None:
    lane, plain = Lane(), PlainTurns()
    refs = [run("a", f"r{number}") for number in range(8)]
    lane.priorities = dict(zip(refs, priorities, strict=True))
    waiting: dict[RunRef, int] = {}
    for passed_ms, queued, count, granted in steps:
        lane.now_ms += passed_ms
        for number, jobs in queued.items():
            waiting.pop(refs[number], None)
            if jobs:
                waiting[refs[number]] = jobs
        if len(waiting) < 2:  # a run that waits alone needs no turns
            continue
        expected = plain.order(waiting, lane.priorities, count, lane.now_ms)
        offered = [offer.ref for offer in lane.order(waiting, count) for _ in range(offer.most)]
        assert offered == expected
        for ref in offered[:granted]:
            lane.shares.charge(ref, 1.0, lane.now_ms)
            plain.served(ref, lane.now_ms)
            waiting[ref] -= 1
            if not waiting[ref]:
                del waiting[ref]


def test_a_decision_looks_at_no_more_runs_than_it_serves() -> None:
    lane, looked_at = Lane(), Counter[RunRef]()
    waiting = {"a": {run("a", f"r{number}"): 1000 for number in range(2000)}}
    lane.order(waiting["a"], 1)

    def priority(ref: RunRef) -> int:
        looked_at[ref] += 1
        return 0

    for _ in range(10):
        waiting["a"][run("a", f"new{lane.now_ms}")] = 1
        lane.now_ms += 1
        for offer in lane.shares.order(waiting, priority, 5, lane.now_ms):
            lane.shares.charge(offer.ref, 1.0, lane.now_ms)

    assert len(looked_at) <= 20
    assert len(lane.shares._team("a").heap) <= 2 * 2010 + fairness.TEAMS_KEPT


def test_places_of_runs_do_not_pile_up() -> None:
    lane = Lane()
    queued = {run("a", "low"): 10**6, run("a", "r1"): 10**6, run("a", "r2"): 10**6}
    lane.priorities = {run("a", "low"): -50}
    lane.grant(queued, 1000, batch=3)

    assert len(lane.shares._team("a").heap) <= 6 + fairness.TEAMS_KEPT


@given(acts=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 500), st.integers(1, 900))))
def test_a_team_is_throttled_until_the_latest_of_its_times(acts: list[tuple[str, int, int]]) -> None:
    throttle, now_ms, until_ms = TeamThrottle(10, lambda: 0.0), 1000, {"a": 0, "b": 0}
    for team, passed_ms, ms in acts:
        now_ms += passed_ms
        assert {each: throttle.left_ms(each, now_ms) for each in until_ms} == {
            each: max(0, until - now_ms) for each, until in until_ms.items()
        }
        throttle.throttle(team, now_ms, ms)
        until_ms[team] = max(until_ms[team], now_ms + ms)
