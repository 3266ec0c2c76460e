"""What is queued on a lane, by team and run, while runs come, are held back and go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.run import RunRef
from fairlane_scheduler.state.backlog import LaneQueue

refs = st.builds(RunRef, st.sampled_from("abc"), st.sampled_from(["r1", "r2"]))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), refs, st.integers(1, 5)),
        st.tuples(st.just("set_queued"), refs, st.integers(0, 5)),
        st.tuples(st.just("throttle"), refs, st.integers(0, 5)),
        st.tuples(st.just("throttle_team"), refs, st.integers(0, 5)),
        st.tuples(st.just("unthrottle"), refs, st.integers(0, 5)),
        st.tuples(st.just("unthrottle_due"), refs, st.integers(0, 5)),
    ),
    max_size=30,
)


@given(steps)
def test_the_jobs_of_a_team_are_those_of_its_runs_that_may_start(
    steps: list[tuple[str, RunRef, int]],
) -> None:
    queue = LaneQueue()
    for step, ref, number in steps:
        match step:
            case "add":
                queue.add(ref, number)
            case "set_queued":
                queue.set_queued(ref, number)
            case "throttle":
                queue.throttle(ref, number or None)
            case "throttle_team":
                queue.throttle_team(ref.team, number or None)
            case "unthrottle":
                queue.unthrottle()
            case _:
                queue.unthrottle_due(number)

        assert queue.by_team == {team: sum(runs.values()) for team, runs in queue.waiting.items()}
        assert all(queue.by_team.values())


def test_runs_that_are_held_back_are_queued_but_may_not_start() -> None:
    queue = LaneQueue()
    queue.add(RunRef("a", "r1"), 3)
    queue.add(RunRef("a", "r2"), 4)
    queue.throttle(RunRef("a", "r1"), None)

    assert queue.by_team == {"a": 4}
    assert queue.depth == 7


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), refs, st.integers(1, 5)),
            st.tuples(st.just("set_queued"), refs, st.integers(0, 2)),
            st.tuples(st.just("throttle"), refs, st.integers(0, 9)),
            st.tuples(st.just("unthrottle_due"), refs, st.integers(0, 9)),
        ),
        max_size=40,
    )
)
def test_a_run_waits_until_its_time_is_over_and_the_next_time_is_known(
    steps: list[tuple[str, RunRef, int]],
) -> None:
    queue, until, now_ms = LaneQueue(), dict[RunRef, int](), 0
    for step, ref, number in steps:
        match step:
            case "add":
                queue.add(ref, number)
                until.pop(ref, None)
            case "set_queued":
                queue.set_queued(ref, number)
                until.pop(ref, None)
            case "throttle":
                if queue.count(ref):
                    until.pop(ref, None)
                    queue.throttle(ref, now_ms + number or None)
                    if now_ms + number:
                        until[ref] = now_ms + number
            case _:
                now_ms += number
                due_ms = queue.unthrottle_due(now_ms)
                until = {each: at_ms for each, at_ms in until.items() if at_ms > now_ms}
                assert due_ms == min(until.values(), default=None)
                assert not any(each in queue.waiting.get(each.team, {}) for each in until)
