"""The provider's queue serves everybody who stays, once, in the order they came."""

from hypothesis import given
from hypothesis import strategies as st

from fairlane.testing.provider.queueing import Queue


@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.sampled_from(["enter", "done", "gives up", "resize"]), st.integers(0, 9))),
)
def test_the_queue_never_loses_or_serves_twice(places: int, steps: list[tuple[str, int]]) -> None:
    queue = Queue[int](places)
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
            places = pick + 1
            started = queue.resize(places)
        for who in started:
            assert who == waiting.pop(0)
            served.append(who)
            begun.append(who)
        assert (queue.serving, queue.waiting) == (len(served), len(waiting))
        assert not waiting or len(served) >= places
    assert begun == sorted(set(begun))


def test_without_a_number_of_places_nobody_waits() -> None:
    queue = Queue[int](None)
    assert all(queue.enter(number) for number in range(100))


def test_one_who_is_not_there_may_leave() -> None:
    queue = Queue[int](1)
    assert queue.enter(1)
    assert queue.leave(2) == []
    assert queue.leave(1) == []
    assert queue.leave(1) == []
    assert queue.serving == 0
