"""The simulated provider's counts show a client's behaviour, and which repetitions were inevitable."""

from hypothesis import given
from hypothesis import strategies as st

from fairlane.lab.simulator.model.behaviour import Fault
from fairlane.lab.simulator.model.stats import REMEMBERED_SECONDS, Recorder
from fairlane.testing import max_admitted_in_window


def test_admissions_are_counted_per_second() -> None:
    recorder = Recorder(started_ms=10_000, wall_offset_ms=500_000)
    for now_ms in (10_000, 10_999, 11_000, 14_500):
        recorder.admitted(now_ms)
    recorder.completed(15_250)
    stats = recorder.snapshot()
    assert stats.admissions_per_second == [(0, 2), (1, 1), (4, 1)]
    assert (stats.first_admitted_s, stats.last_completed_s) == (0.0, 5.25)
    assert (stats.first_admitted_at, stats.last_completed_at) == (510.0, 515.25)
    assert (stats.in_flight, stats.peak_in_flight) == (3, 4)


def test_only_the_last_two_hours_of_admissions_are_kept() -> None:
    recorder = Recorder(0, 0)
    for second in range(REMEMBERED_SECONDS + 5):
        recorder.admitted(second * 1000)
    kept = recorder.snapshot().admissions_per_second
    assert (len(kept), kept[0]) == (REMEMBERED_SECONDS, (5, 1))


def test_repeated_work_is_counted_by_the_end_of_the_earlier_work() -> None:
    recorder = Recorder(0, 0)
    for prompt, ending in [
        ("a", None),
        ("b", Fault.RESET_AFTER_WORK),
        ("b", Fault.MALFORMED),
        ("b", None),
        ("b", None),
    ]:
        recorder.paid(prompt, 10, 5, ending)
    stats = recorder.snapshot()
    assert stats.duplicates == 3
    assert stats.duplicates_after.model_dump() == {
        "completed": 1,
        "reset_after_work": 1,
        "malformed": 1,
        "cut_stream": 0,
    }
    assert (stats.prompt_tokens, stats.completion_tokens) == (50, 25)


@given(st.dictionaries(st.integers(0, 40), st.integers(1, 50)), st.integers(1, 20))
def test_the_fullest_window_is_found(counts: dict[int, int], seconds: int) -> None:
    admissions = sorted(counts.items())
    windows = [sum(counts.get(begin + n, 0) for n in range(seconds)) for begin in range(41)]
    assert max_admitted_in_window(admissions, seconds) == max(windows)
