"""One reading serves all who look within a moment, and no more are kept than are looked at."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event

import pytest

from fairlane.core.clock import ManualClock
from fairlane.flower.readings.readers import FRESH_S, KEPT, SharedReading


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def readings(clock: ManualClock) -> Iterator[SharedReading]:
    made = SharedReading(lambda: clock.monotonic_ms() / 1000)
    yield made
    made.close()


def test_what_was_read_a_moment_ago_is_not_read_again(readings: SharedReading, clock: ManualClock) -> None:
    read: list[str] = []

    def work(name: str) -> int:
        read.append(name)
        return len(read)

    assert [readings.read(work, "a").result(5) for _ in range(3)] == [1, 1, 1]
    assert readings.read(work, "b").result(5) == 2
    clock.advance(FRESH_S)
    assert readings.read(work, "a").result(5) == 3


def test_a_reading_that_goes_on_is_joined_however_long_it_takes(
    readings: SharedReading, clock: ManualClock
) -> None:
    go, begun = Event(), []

    def slow() -> str:
        begun.append(1)
        assert go.wait(5)
        return "read"

    first = readings.read(slow)
    clock.advance(60)
    second = readings.read(slow)
    go.set()

    assert (first.result(5), second.result(5)) == ("read", "read")
    assert begun == [1]


def test_a_reading_that_failed_is_tried_again(readings: SharedReading, clock: ManualClock) -> None:
    def broken() -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        readings.read(broken).result(5)
    clock.advance(FRESH_S)
    assert readings.read(len, "abc").result(5) == 3


def test_readings_do_not_pile_up(readings: SharedReading) -> None:
    for number in range(2 * KEPT):
        readings.read(abs, number).result(5)
    assert len(readings._readings) == KEPT
