"""A deployment with Flower in front, and a browser that looks at it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from fairlane.testing import SimulatedModel
from tests.edge.browser.chromium import NoBrowser, chromium
from tests.edge.browser.front import front
from tests.support.cluster import Cluster, cluster
from tests.support.tools import lacking

LOGIN = {"username": "me", "password": "a-password-of-tests"}
SETTLED_MS = 20_000
MODELS = {
    "fast": SimulatedModel(latency_ms=50),
    "slow": SimulatedModel(latency_ms=50),
    "judge": SimulatedModel(latency_ms=50, output="judge"),
}
CONFIG = """
[lanes."sim:slow"]
requests_per_minute = 30
[teams.search]
weight = 3
[[teams.search.budgets]]
per = "day"
tokens = 1000000
[prices."sim:*"]
input = 0.5
output = 2
"""

expect.set_options(timeout=SETTLED_MS)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("browser"), MODELS, config=CONFIG, workers=1) as made:
        yield made


@pytest.fixture(scope="module")
def flower(deployment: Cluster) -> Iterator[str]:
    """Where Flower answers, to those who log in."""
    with front(deployment, ["--", "--basic_auth=" + ":".join(LOGIN.values())]) as base:
        yield base


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    try:
        with chromium() as opened:
            yield opened
    except NoBrowser as missing:
        lacking(str(missing))


@dataclass
class Window:
    """A page, and all that went wrong on any of those that it has shown."""

    page: Page
    base: str
    complaints: list[str] = field(default_factory=list)

    def go(self, path: str) -> Page:
        self.page.goto(self.base + path)
        return self.page


@pytest.fixture
def window(browser: Browser, flower: str) -> Iterator[Window]:
    context: BrowserContext = browser.new_context(
        http_credentials=LOGIN, viewport={"width": 1360, "height": 900}, timezone_id="UTC"
    )
    context.set_default_timeout(SETTLED_MS)
    opened = Window(context.new_page(), flower)
    page = opened.page
    page.on("console", lambda said: said.type in ("error", "warning") and opened.complaints.append(said.text))
    page.on("pageerror", lambda error: opened.complaints.append(str(error)))
    page.on("request", lambda sent: sent.url.startswith(flower) or opened.complaints.append(sent.url))
    yield opened
    context.close()
