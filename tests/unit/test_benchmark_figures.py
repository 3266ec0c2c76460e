"""How benchmarks write their figures into the page."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.figures import write_figures
from tests.benchmarks.report import Finding

ORDER = ["known", "lanes", "feed"]


def _page(folder: Path) -> Path:
    page = folder / "page.md"
    page.write_text("before\n<!-- figures -->\n<!-- /figures -->\nafter\n")
    return page


def test_a_figure_is_the_median_of_its_rounds_beside_its_bar(tmp_path: Path) -> None:
    page = _page(tmp_path)
    walls = [Finding("any", "wall", value, bar=1.03) for value in (1.02, 1.05, 1.04)]
    write_figures(page, {"known": walls}, ORDER, "2026-01-02", 3)
    assert (
        "| known | wall | 1.040 | 1.020 to 1.050 | ≤ 1.03, **missed** | 2026-01-02, 3× |" in page.read_text()
    )


def test_the_rows_of_benchmarks_that_did_not_run_are_kept(tmp_path: Path) -> None:
    page = _page(tmp_path)
    fed = Finding("any", "{{ q | upper }}", 48_211.3, "rows/s", bar=10_000, at_most=False)
    write_figures(
        page, {"feed": [fed], "known": [Finding("any", "429s", 2, "calls")]}, ORDER, "2026-01-02", 1
    )
    write_figures(page, {"known": [Finding("any", "429s", 0, "calls", bar=0)]}, ORDER, "2026-01-03", 1)
    assert page.read_text().splitlines()[2:-2] == [
        "",
        "| benchmark | figure | median | least to most | bar | measured |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| known | 429s | 0 calls |  | ≤ 0 | 2026-01-03, 1× |",
        r"| feed | {{ q \| upper }} | 48,211 rows/s |  | ≥ 10,000 | 2026-01-02, 1× |",
        "",
    ]
