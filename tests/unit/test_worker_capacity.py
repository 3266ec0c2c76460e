"""A worker takes as many calls at once as its event loop serves, and no more than it is configured to."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane_workers.upkeep.capacity import LEAST_SLOTS, START_SLOTS, Capacity, share_of_memory


def capacity(most: int = 1000, memory: float = 0.1, **options: bool) -> Capacity:
    return Capacity(most, memory=lambda: memory, **options)


def beat(worker: Capacity, busy: int, delay_s: float, beats: int = 1) -> int:
    for _ in range(beats):
        worker.note(delay_s)
        worker.update(busy)
    return worker.slots


def test_capacity_starts_at_the_default_or_the_configured_slots() -> None:
    assert capacity().slots == START_SLOTS
    assert capacity(7).slots == 7


def test_slots_in_use_become_more_up_to_the_configured_number() -> None:
    worker = capacity()
    before = worker.slots
    assert beat(worker, 79, 0.001) == before
    assert beat(worker, 80, 0.001) == 151
    for _ in range(10):
        beat(worker, worker.slots, 0.001)
    assert worker.slots == 1000


def test_a_loop_that_is_always_late_has_fewer_and_never_none() -> None:
    worker = capacity()
    assert beat(worker, 100, 0.4) == 80
    assert beat(worker, 100, 0.4, beats=50) == LEAST_SLOTS
    small = capacity(3)
    assert beat(small, 3, 0.4, beats=50) == 3


def test_one_pause_takes_no_slots_and_gives_none() -> None:
    worker = capacity()
    beat(worker, 0, 0.001, beats=4)
    assert beat(worker, 100, 9.0) == START_SLOTS
    assert beat(worker, 100, 0.001) == 151


@pytest.mark.parametrize("delay_s", [0.001, 0.06, 0.2])
def test_slots_that_a_busy_machine_took_come_back_before_it_is_quiet(delay_s: float) -> None:
    worker = capacity()
    assert beat(worker, 100, 0.4, beats=50) == LEAST_SLOTS
    for _ in range(12):
        beat(worker, worker.slots, delay_s)
    assert worker.slots >= START_SLOTS
    small = capacity(40)
    beat(small, 40, 0.4, beats=50)
    for _ in range(12):
        beat(small, small.slots, delay_s)
    assert small.slots == 40


def test_a_loop_that_is_a_little_late_is_given_no_more_than_a_worker_begins_with() -> None:
    worker = capacity()
    assert beat(worker, 100, 0.2, beats=20) == START_SLOTS
    beat(worker, 0, 0.4, beats=10)
    for _ in range(30):
        beat(worker, worker.slots, 0.2)
    assert worker.slots == START_SLOTS


def test_slots_that_nobody_uses_do_not_come_back() -> None:
    worker = capacity()
    beat(worker, 100, 0.4, beats=50)
    assert beat(worker, 3, 0.001, beats=20) == LEAST_SLOTS


def test_heartbeats_in_quick_succession_judge_a_delay_once() -> None:
    worker = capacity()
    for _ in range(5):
        worker.note(0.4)
    assert [worker.update(100) for _ in range(5)] == [80] * 5
    for _ in range(5):
        worker.note(0.001)
    assert [worker.update(80) for _ in range(5)] == [121] * 5


def test_memory_that_runs_out_takes_slots() -> None:
    assert beat(capacity(memory=0.9), 100, 0.001) == 80


def test_a_worker_of_functions_keeps_its_threads() -> None:
    worker = capacity(fixed=True)
    assert beat(worker, 100, 0.001) == START_SLOTS
    assert beat(worker, 100, 0.9, beats=9) == START_SLOTS


PAGES, MACHINE_PAGES = 1_000, 25_000
PAGE = os.sysconf("SC_PAGE_SIZE")


def system(root: Path, cgroup: str, **limits: str) -> Path:
    """A ``/`` in which this process has `PAGES`; ``limits``: a file of ``sys/fs/cgroup`` → its text."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/statm").write_text(f"5000 {PAGES} 300 1 0 1 0\n")
    (root / "proc/self/cgroup").write_text(cgroup)
    for place, text in limits.items():
        file = root / "sys/fs/cgroup" / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def share_in(root: Path) -> float:
    return share_of_memory(root, lambda: MACHINE_PAGES * PAGE)


UNIT = "system.slice/system-fairlane.slice/fairlane-worker@1.service"
HALF = f"{2 * PAGES * PAGE}\n"


@pytest.mark.parametrize(
    ("cgroup", "limits", "share"),
    [
        ("0::/\n", {"memory.max": "max\n"}, 0.04),
        ("0::/\n", {"memory.max": HALF}, 0.5),
        ("0::/\n", {}, 0.04),
        (f"0::/{UNIT}\n", {f"{UNIT}/memory.max": HALF}, 0.5),
        (f"0::/{UNIT}\n", {f"{UNIT}/memory.max": "max\n", f"{UNIT}/memory.high": HALF}, 0.5),
        (f"0::/{UNIT}\n", {f"{UNIT}/memory.max": "max\n", "system.slice/memory.max": HALF}, 0.5),
        ("3:cpu:/a\n4:memory:/a:b\n0::/\n", {"memory/a:b/memory.limit_in_bytes": HALF}, 0.5),
        ("4:memory:/docker/1f\n", {"memory/memory.limit_in_bytes": HALF}, 0.5),
        ("", {"memory.max": HALF}, 0.04),
        ("nonsense\n", {}, 0.04),
    ],
)
def test_the_share_of_memory_is_of_the_least_limit(
    tmp_path: Path, cgroup: str, limits: dict[str, str], share: float
) -> None:
    assert share_in(system(tmp_path, cgroup, **limits)) == pytest.approx(share)


def test_a_system_that_does_not_say_limits_nothing(tmp_path: Path) -> None:
    assert share_in(tmp_path / "none") == 0.0


@given(
    cgroup=st.text(st.characters(codec="utf-8"), max_size=80), limit=st.text("0123456789-max \n", max_size=24)
)
def test_whatever_the_system_says_is_no_error(cgroup: str, limit: str) -> None:
    with TemporaryDirectory() as root:
        for number, text in enumerate((cgroup, "0::/\n", "4:memory:/\n")):
            place = Path(root) / str(number)
            share = share_in(
                system(place, text, **{"memory.max": limit, "memory/memory.limit_in_bytes": limit})
            )
            assert share >= PAGES / MACHINE_PAGES


def test_this_system_reports_its_memory_share() -> None:
    assert 0.0 < share_of_memory() < 1.0


def test_memory_is_not_looked_at_while_nothing_runs() -> None:
    asked: list[bool] = []

    def full() -> float:
        asked.append(True)
        return 1.0

    worker = Capacity(100, memory=full)
    assert beat(worker, 0, 0.001) == 100
    assert not asked
    assert beat(worker, 1, 0.001) == 80
