"""The leader's picture of what waits: counts by lane and run, bounded by the runs that are active."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.choices import Message
from fairlane.model.run import Plan, RunRef, RunSpec
from fairlane_scheduler.state.backlog import ActiveRun, Backlog

REF, OTHER = RunRef("search", "r1"), RunRef("ads", "r2")


def active(ref: RunRef, model: str = "sim:fast") -> ActiveRun:
    spec = RunSpec(
        run=ref.run,
        team=ref.team,
        name="",
        prompts=((Message(role="user", content="x"),),),
        models=(model,),
        priority=3,
        rows=10,
        page_rows=10,
        submitted_ms=0,
    )
    return ActiveRun(ref, Plan(spec=spec))


@pytest.fixture
def backlog() -> Backlog:
    made = Backlog()
    made.add_run(active(REF))
    made.add_run(active(OTHER))
    return made


def test_what_is_queued_is_counted_by_lane_and_run(backlog: Backlog) -> None:
    backlog.add("fast", REF, 3)
    backlog.add("fast", OTHER)
    backlog.add("slow", REF)

    assert backlog.queued("fast") == {REF: 3, OTHER: 1}
    assert (backlog.depth("fast"), backlog.depth("slow"), backlog.depth("none")) == (4, 1, 0)
    assert backlog.count("fast", OTHER) == 1
    assert sorted(backlog.waiting_lanes()) == ["fast", "slow"]


def test_jobs_of_a_run_that_is_not_active_are_not_counted(backlog: Backlog) -> None:
    backlog.add("fast", RunRef("search", "unknown"))
    backlog.set_queued("fast", RunRef("search", "unknown"), 5)

    assert backlog.waiting_lanes() == []


def test_a_grant_sets_the_count(backlog: Backlog) -> None:
    backlog.add("fast", REF, 10)
    backlog.set_queued("fast", REF, 4)
    assert backlog.count("fast", REF) == 4

    backlog.set_queued("fast", REF, 0)
    assert backlog.waiting_lanes() == []


def test_a_run_that_ends_leaves_nothing(backlog: Backlog) -> None:
    backlog.add("fast", REF, 10)
    backlog.add("fast", OTHER, 1)

    backlog.drop_run(REF)

    assert backlog.queued("fast") == {OTHER: 1}
    assert [run.ref for run in backlog.runs()] == [OTHER]
    assert backlog.get(REF) is None


def test_a_run_knows_its_priority_and_when_it_has_been_handed_out() -> None:
    run = active(REF)
    assert (run.priority, run.fully_fed) == (3, False)

    run.cursor = 10

    assert run.fully_fed


def test_a_run_whose_rows_name_the_model_is_open_ended() -> None:
    assert active(REF, "sim:{{ lane }}").open_ended
    assert not active(REF).open_ended


@given(
    gaps=st.lists(st.integers(0, 20), max_size=9),
    since=st.integers(0, 100),
    length=st.integers(0, 200),
)
def test_time_counts_unless_the_run_is_paused(gaps: list[int], since: int, length: int) -> None:
    run, moments = active(REF), list(accumulate(gaps))
    run.pauses = tuple(pairwise(moments))[::2]
    counted = [
        at for at in range(since, since + length) if not any(begin <= at < end for begin, end in run.pauses)
    ]
    assert run.unpaused_ms(since, since + length) == len(counted)


def limited(name: str, started_ms: int, max_duration: float | None) -> ActiveRun:
    run = active(RunRef("search", name))
    bounds = run.plan.spec.bounds.model_copy(update={"max_duration": max_duration})
    spec = run.plan.spec.model_copy(update={"bounds": bounds})
    return ActiveRun(run.ref, run.plan.model_copy(update={"spec": spec}), started_ms=started_ms)


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.none() | st.integers(0, 9), st.integers(0, 9), st.booleans()),
        max_size=20,
    )
)
def test_the_next_deadline_is_that_of_the_active_run_that_ends_first(
    steps: list[tuple[int, int | None, int, bool]],
) -> None:
    backlog, ends = Backlog(), dict[RunRef, int]()
    for number, seconds, started_ms, is_added in steps:
        run = limited(f"r{number}", started_ms, seconds)
        ends.pop(run.ref, None)
        if is_added:
            backlog.add_run(run)
            if seconds is not None:
                ends[run.ref] = started_ms + 1000 * seconds
        else:
            backlog.drop_run(run.ref)
        due = backlog.next_deadline()
        assert (due and due[0]) == min(ends.values(), default=None)
        assert due is None or ends[due[1].ref] == due[0]


def test_runs_that_are_fully_fed_are_looked_at_no_more(backlog: Backlog) -> None:
    assert [run.ref for run in backlog.feeding()] == [REF, OTHER]
    fed = backlog.get(REF)
    assert fed is not None
    fed.cursor = 10

    assert [run.ref for run in backlog.feeding()] == [OTHER]
    backlog.drop_run(OTHER)
    assert backlog.feeding() == []
    backlog.add_run(active(REF))
    assert [run.ref for run in backlog.feeding()] == [REF]
