"""Takes the pictures of docs/flower.md, in four minutes: ``python -m tests.edge.browser.pictures FOLDER``."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Page

from fairlane import Client, Run, exact_match, llm_judge
from fairlane.lab.simulator.config import Faults
from fairlane.testing import SimulatedModel
from tests.edge.browser.chromium import chromium
from tests.edge.browser.front import front
from tests.support.cluster import Cluster, cluster
from tests.support.wait import wait_until

WATCH_S = 200.0
HEARD_MS = 8_000  # by then Flower has asked the workers for their events
SUMMED_MS = 10_000  # then all items that are over are in the sums
WIDTH, HEIGHT = 1280, 640
MODELS = {
    "large": SimulatedModel(
        output="echo", latency_ms=900, requests_per_minute=900, limit_changes=((110, 480),)
    ),
    "small": SimulatedModel(latency_ms=300, requests_per_minute=1200, faults=Faults(error_500=0.1)),
    "judge": SimulatedModel(latency_ms=250, output="fixed", fixed_text="yes"),
}
CONFIG = """
[lanes."sim:judge"]
requests_per_minute = 3000
[teams.search]
weight = 3
[[teams.search.budgets]]
per = "day"
tokens = 300000
[teams.ads]
weight = 1
[[teams.ads.budgets]]
per = "month"
usd = 0.3
[prices."sim:*"]
input = 2.5
output = 10
"""


def main(folder: Path) -> None:
    """A deployment with two teams, watched for a while."""
    with (
        tempfile.TemporaryDirectory() as directory,
        cluster(Path(directory), MODELS, config=CONFIG, slots=100) as deployment,
        front(deployment) as base,
        chromium() as browser,
    ):
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, timezone_id="UTC")
        page.goto(f"{base}/teams")
        page.wait_for_timeout(HEARD_MS)
        runs = [_submitted(deployment, team, count) for team, count in (("search", 3200), ("ads", 1600))]
        began = time.monotonic()
        wait_until(lambda: time.monotonic() - began > WATCH_S, timeout=WATCH_S + 10, interval=1.0)
        search = runs[0][0]
        _take(page, base, "/teams", folder / "flower-teams.png", whole=True)
        _take(page, base, "/lanes", folder / "flower-lanes.png")
        _take(page, base, "/lane/sim%3Alarge", folder / "flower-lane.png", whole=True)
        page.goto(f"{base}/runs")
        page.wait_for_timeout(SUMMED_MS)
        _take(page, base, "/runs", folder / "flower-runs.png")
        _take(page, base, f"/run/search/{search.id}", folder / "flower-run.png", whole=True)
        _take(
            page,
            base,
            f"/run/search/{runs[0][1].id}/{_retried(runs[0][1])}",
            folder / "flower-item.png",
            whole=True,
        )
        _take(page, base, "/tasks", folder / "flower-tasks.png")
        for run in (run for some in runs for run in some):
            run.cancel()


def _submitted(deployment: Cluster, team: str, count: int) -> tuple[Run, Run]:
    client: Client = deployment.client_of(team)
    rows = [{"question": f"What is {n} + {n}?"} for n in range(count)]
    rows = [row | {"answer": row["question"] if n % 10 > 2 else "?"} for n, row in enumerate(rows)]
    judge = llm_judge("sim:judge", "Is {{ output }} right?", choices={"yes": 1.0, "no": 0.0})
    prompt, scored = "{{ question }}", [judge, exact_match("answer")]
    long = client.submit(rows, prompt, model="sim:large", evaluators=scored, name=f"{team}: nightly")
    return long, client.submit(rows[:300], prompt, model="sim:small", evaluators=[judge], name="smoke test")


def _retried(run: Run) -> int:
    """An item that took several attempts."""
    return next((record.item for record in run.results() if record.attempts > 1), 0)


def _take(page: Page, base: str, path: str, to: Path, *, whole: bool = False) -> None:
    page.goto(base + path)
    page.wait_for_timeout(3500)
    page.screenshot(path=to, full_page=whole)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
