"""The provider's queue serves each call that stays once, in the order of arrival."""

from hypothesis import given
from hypothesis import strategies as st

from fairlane.lab.simulator.limits.queueing import Queue


@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.sampled_from(["enter", "done", "gives up", "resize"]), st.integers(0, 9))),
)
def test_the_queue_never_loses_or_serves_twice(concurrency: int, steps: list[tuple[str, int]]) -> None:
    queue = Queue[int](concurrency)
    served, begun, waiting = list[int](), list[int](), list[int]()
    for number, (step, pick) in enumerate(steps):
        started: list[int] = []
        if step == "enter":
            if queue.enter(number):
                started = [number]
            waiting.append(number)
        elif step == "done" and served:
            started = queue.leave(served.pop(pick % len(served)))
        elif step == "gives up" and waiting:
            started = queue.leave(waiting.pop(pick % len(waiting)))
        elif step == "resize":
            concurrency = pick + 1
            started = queue.resize(concurrency)
        for started_call in started:
            assert started_call == waiting.pop(0)
            served.append(started_call)
            begun.append(started_call)
        assert (queue.serving, queue.waiting) == (len(served), len(waiting))
        assert not waiting or len(served) >= concurrency
    assert begun == sorted(set(begun))


def test_without_a_concurrency_limit_no_call_waits() -> None:
    queue = Queue[int](None)
    assert all(queue.enter(number) for number in range(100))


def test_an_unknown_call_may_leave() -> None:
    queue = Queue[int](1)
    assert queue.enter(1)
    assert queue.leave(2) == []
    assert queue.leave(1) == []
    assert queue.leave(1) == []
    assert queue.serving == 0
