"""What the scale benchmark computes from its measurements, and how it writes them into the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.scale.deployment import Call, Load, evenness, percentile
from tests.benchmarks.scale.grid import Cell
from tests.benchmarks.scale.ladder import Climb, Rung
from tests.benchmarks.scale.page import grid_table, rewrite
from tests.benchmarks.scale.sizing import costs_of, knee_of, machines

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"


def _load(jobs: int, wall_s: float, redis: float, scheduler: float, worker: float) -> Load:
    cpu = {"redis": redis, "scheduler-1": scheduler, "worker-1": worker, "worker-2": worker, "submitter": 9.0}
    rss = {"redis": 12.0, "scheduler-1": 74.0, "worker-1": 86.0, "worker-2": 90.0}
    return Load(jobs, 0.0, wall_s, cpu, rss, 90.0)


def _climb(per_s: int, load: Load) -> Climb:
    return Climb(Rung(per_s, 1, 10), "simulated", load, 1.0, (2, 20, 40), (1.0, 1.0), 0)


def test_cpu_a_job_counts_every_process_but_the_submitter() -> None:
    load = _load(1000, 2.0, 0.2, 0.1, 0.3)
    assert load.cpu_ms() == pytest.approx(0.9)
    assert load.cpu_ms("worker") == pytest.approx(0.6)
    assert load.cores["redis"] == pytest.approx(0.1)


def test_the_knee_is_the_fastest_cell_and_names_what_is_full_first() -> None:
    slow = Cell(1, 1, _load(1000, 2.0, 0.5, 0.2, 0.4), (1, 2, 3), (1.0, 1.0))
    fast = Cell(2, 4, _load(1000, 1.0, 0.3, 0.1, 0.4), (1, 2, 3), (1.0, 1.0))
    knee = knee_of([slow, fast], cores=2)
    assert (knee.workers, knee.lanes, knee.first, knee.fullest) == (2, 4, "Redis", "worker-1")
    assert knee.redis_per_s == pytest.approx(1000 / 0.3)


def test_machines_grow_with_the_rate_and_split_into_cells() -> None:
    cells = [Cell(2, 4, _load(1000, 1.0, 0.3, 0.1, 0.4), (1, 2, 3), (1.0, 1.0))]
    http = [_climb(10, _load(100, 10.0, 0.1, 0.1, 0.1)), _climb(500, _load(5000, 10.0, 2.0, 1.0, 4.0))]
    costs = costs_of(cells, [], http, waiting=5.0)
    small, large = machines(10, costs), machines(5000, costs)
    assert (small.workers, small.slots, small.cells) == (2, 25, 1)
    assert large.redis_cores == pytest.approx(5000 * 0.3 / 1000)
    assert (large.workers, large.slots, large.cells) == (14, 12_500, 3)


def test_evenness_is_one_for_equal_lanes_and_falls_to_one_lane_of_many() -> None:
    equal = [Call(n, f"lane-{n % 4}", 1) for n in range(80)]
    assert evenness(equal, 4) == (1.0, 1.0)
    assert evenness([Call(n, "lane-0", 1) for n in range(80)], 4) == (0.25, 0.0)


def test_a_percentile_of_nothing_is_zero() -> None:
    assert percentile([], 0.99) == 0.0
    assert percentile([1, 2, 3, 4], 0.5) == 3


def test_tables_are_written_between_their_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- grid -->\nold\n<!-- /grid -->\nafter\n")
    cell = Cell(2, 4, _load(1000, 1.0, 0.3, 0.1, 0.4), (1, 2, 3), (1.0, 1.0))
    rewrite(page, {"grid": grid_table([cell])})
    written = page.read_text()
    assert "old" not in written
    assert "| 2 | 4 | 1,000 | 1.20 | 0.30 | 0.10 | 0.80 |" in written
    with pytest.raises(ValueError, match="it needs one: <!-- knee -->"):
        rewrite(page, {"grid": "new", "knee": "new"})
    assert page.read_text() == written


@pytest.mark.parametrize("name", ["measured", "ladder", "ladder-noop", "grid", "knee", "machines"])
def test_the_page_has_a_place_for_every_table(name: str) -> None:
    assert PAGE.read_text(encoding="utf-8").count(f"<!-- {name} -->") == 1
