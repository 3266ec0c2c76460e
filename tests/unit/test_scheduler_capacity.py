"""Free slots, lane by lane: pools of workers, bound ones, and those that stop."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.store.write.workers import Beat, WorkerInfo
from fairlane_scheduler.dispatch.slots import Capacity


def beat(slots: int, *lanes: str, busy: int = 0, stopping: bool = False) -> Beat:
    info = WorkerInfo("w", slots, lanes, "0", 1, "host", 0, busy, stopping)
    return Beat(f"id-{slots}-{lanes}", 0, info)


def capacity(*workers: Beat) -> Capacity:
    made = Capacity()
    made.update(list(workers))
    return made


def test_without_workers_there_is_no_room() -> None:
    assert capacity().room("a", {}) == 0


def test_a_lane_that_no_worker_serves_has_no_room() -> None:
    assert capacity(beat(10, "a")).room("b", {}) == 0


def test_workers_that_serve_everything_are_one_pool() -> None:
    pool = capacity(beat(10, "a", "b"), beat(5, "a", "b"))

    assert pool.room("a", {}) == 15
    assert pool.room("a", {"a": 4, "b": 6}) == 5
    assert pool.room("b", {"a": 15}) == 0


def test_room_is_never_negative() -> None:
    assert capacity(beat(2, "a")).room("a", {"a": 7}) == 0


def test_bound_workers_do_not_share_with_the_others() -> None:
    pools = capacity(beat(10, "a"), beat(3, "b"))

    assert pools.room("a", {"b": 100}) == 10
    assert pools.room("b", {"a": 100}) == 3


def test_a_lane_never_gets_more_than_the_workers_that_serve_it() -> None:
    pools = capacity(beat(10, "a", "b"), beat(5, "b"))

    assert pools.room("a", {}) == 10
    assert pools.room("b", {}) == 15
    assert pools.room("a", {"b": 12}) == 3


def test_a_worker_joins_the_pools_that_it_links() -> None:
    pools = capacity(beat(1, "a"), beat(2, "b"), beat(4, "c"), beat(8, "a", "b"))

    assert pools.room("b", {"a": 5}) == 6
    assert pools.room("c", {"a": 5, "b": 5}) == 4


def test_a_worker_without_lanes_adds_nothing() -> None:
    assert capacity(beat(10), beat(3, "a")).room("a", {}) == 3


def test_a_stopping_worker_counts_for_what_it_still_holds() -> None:
    pool = capacity(beat(10, "a", busy=4, stopping=True), beat(10, "a"))

    assert pool.room("a", {"a": 4}) == 10
    assert pool.room("a", {"a": 14}) == 0


def test_workers_that_are_gone_are_forgotten() -> None:
    pool = capacity(beat(10, "a"))
    pool.update([])

    assert pool.room("a", {}) == 0


lanes = st.sets(st.sampled_from("abcde"), min_size=1)


@given(workers=st.lists(st.tuples(st.integers(1, 20), lanes), max_size=6), order=st.permutations("abcde"))
def test_filling_all_room_never_exceeds_the_slots_there_are(
    workers: list[tuple[int, set[str]]], order: list[str]
) -> None:
    known = capacity(*(beat(slots, *sorted(served)) for slots, served in workers))
    in_flight: dict[str, int] = {}

    for lane in order:
        in_flight[lane] = known.room(lane, in_flight)
        assert in_flight[lane] <= sum(slots for slots, served in workers if lane in served)

    assert sum(in_flight.values()) <= sum(slots for slots, _ in workers)


@pytest.mark.parametrize("count", [1, 7, 40])
def test_identical_workers_fill_up_exactly(count: int) -> None:
    pool = capacity(*[beat(3, "a", "b", "c")] * count)
    in_flight = {"a": 1, "b": 1}

    assert pool.room("c", in_flight) == 3 * count - 2
