"""A report in a browser: nothing is loaded, nothing complains, and it fits the screen it is opened on."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from fairlane.apps.report.page import write_report
from tests.unit.test_report import EVIL, evil_source, source

pytestmark = pytest.mark.browser

NAMES = ("plain", "evil")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("reports")
    for name, made in zip(NAMES, (source(), evil_source()), strict=True):
        write_report(folder / f"{name}.html", made, examples=4)
    return {name: Path(folder / f"{name}.html").as_uri() for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_shown_whole_and_asks_for_nothing(
    browser: Browser, pages: dict[str, str], name: str, width: int, scheme: Literal["light", "dark"]
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(pages[name])
    assert (said, asked) == ([], [pages[name]])
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for chart in page.locator("svg.chart").all():
        box = chart.bounding_box()
        assert box is not None
        assert box["width"] > 200
        assert box["height"] > 60
    page.close()


def test_ink_and_ground_differ_in_the_dark_and_in_the_light(browser: Browser, pages: dict[str, str]) -> None:
    grounds = []
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme)  # type: ignore[arg-type]
        page.goto(pages["plain"])
        style = "getComputedStyle(document.body)"
        grounds.append(page.evaluate(f"[{style}.color, {style}.backgroundColor]"))
        page.close()
    (ink, ground), (dark_ink, dark_ground) = grounds
    assert len({ink, ground, dark_ink, dark_ground}) == 4


def test_what_looks_like_html_is_read_as_it_was_written(browser: Browser, pages: dict[str, str]) -> None:
    page = browser.new_page()
    page.goto(pages["evil"])
    assert page.locator("h1").inner_text() == EVIL
    page.locator("summary").first.click()
    assert page.locator("details[open] pre").first.inner_text() == EVIL
    assert page.locator("script, img").count() == 0
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_a_report(
    browser: Browser, pages: dict[str, str], scheme: Literal["light", "dark"]
) -> None:
    page = browser.new_page(color_scheme=scheme)
    page.goto(pages["plain"])
    violations = Axe().run(page).response["violations"]
    page.close()
    found = [f"{each['id']}: {node['failureSummary']}" for each in violations for node in each["nodes"]]
    assert not found, "\n".join(found)
