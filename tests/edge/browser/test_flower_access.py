"""Flower's pages for whoever uses a keyboard or a screen reader, and pages that have nothing to show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Route, expect

from fairlane import Run, RunState, exact_match
from tests.edge.browser.conftest import Window
from tests.support.cluster import Cluster, all_succeeded, numbered
from tests.support.wait import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

GONE = json.dumps({"error": "Redis does not answer"})
FRAME = ["nav.app-navbar", "nav.navbar", ".skip-link", "#toast-container"]
"""Flower's own frame, which is not ours to mend."""


@pytest.fixture(scope="module")
def ended(deployment: Cluster) -> Run:
    run = deployment.client.submit(
        numbered(3, expected="x"),
        "{{ n }}",
        model="sim:fast",
        evaluators=[exact_match("expected")],
        name="ended",
    )
    all_succeeded(run)
    failed = deployment.client.submit(numbered(3), "{{ n }}", model="sim:nosuch", name="failed")
    failed.wait()
    return run


@pytest.fixture(scope="module")
def running(deployment: Cluster) -> Iterator[Run]:
    run = deployment.client.submit(numbered(1800), "{{ n }}", model="sim:slow", name="running")
    wait_until(lambda: run.status().state is RunState.RUNNING)
    yield run
    run.cancel()


def updated(page: Page) -> None:
    """Wait until the page has been drawn anew, if not for the first time."""
    status = page.locator("#fairlane-status")
    expect(status).to_contain_text("Updated")
    expect(status).not_to_have_text(status.inner_text())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_any_page(
    window: Window, ended: Run, running: Run, scheme: Literal["light", "dark"]
) -> None:
    axe, found = Axe(), list[str]()
    options = {"resultTypes": ["violations"]} | ({"runOnly": ["color-contrast"]} if scheme == "dark" else {})
    window.page.emulate_media(color_scheme=scheme)
    paths = (
        *("/lanes", "/lane/sim%3Aslow", "/lane/sim%3Anosuch", "/runs", "/teams", "/run/search/nothing"),
        *(f"/run/search/{running.id}", f"/run/search/{ended.id}", f"/run/search/{ended.id}/1"),
    )
    for path in paths:
        page = window.go(path)
        if path != "/run/search/nothing":
            expect(page.locator("#fairlane-status")).to_contain_text("Updated")
        answer = axe.run(page, context={"exclude": FRAME}, options=options)
        for each in answer.response["violations"]:
            for node in each["nodes"]:
                found.append(f"{path} {each['id']}: {node['target']} {node['failureSummary']}")
    assert not found, "\n".join(found)


def test_a_heading_leads_every_page_and_none_is_skipped(window: Window, ended: Run) -> None:
    for path in ("/lanes", "/lane/sim%3Afast", "/runs", "/teams", f"/run/search/{ended.id}"):
        page = window.go(path)
        expect(page.locator("#fairlane-status")).to_contain_text("Updated")
        assert page.locator("h1").count() == 1
        levels = page.locator("h1, h2, h3").evaluate_all("all => all.map((one) => Number(one.tagName[1]))")
        assert set(levels) <= {1, 2}
        assert page.locator("[aria-live] #fairlane-status").count() == 0


@pytest.mark.parametrize("where", ["a", "[data-verb=pause]"])
def test_the_keyboard_keeps_its_place_while_a_table_is_drawn_anew(
    deployment: Cluster, window: Window, running: Run, where: str
) -> None:
    page = window.go("/runs")
    row = page.locator("#runs tbody tr", has_text=running.id)
    row.locator(where).first.focus()
    focused = "() => document.activeElement.closest('tr')?.dataset.key + document.activeElement.textContent"
    before = page.evaluate(focused)
    assert running.id in before
    newer = deployment.client.submit(numbered(1), "{{ n }}", model="sim:fast", name="newer")
    expect(page.locator("#runs tbody tr", has_text=newer.id)).to_be_visible()
    updated(page)
    assert page.evaluate(focused) == before


def test_the_keyboard_keeps_a_runs_button_and_presses_the_right_one(window: Window, running: Run) -> None:
    page = window.go(f"/run/search/{running.id}")
    page.locator("[data-verb=pause]").focus()
    updated(page)
    assert page.evaluate("() => document.activeElement.dataset.verb") == "pause"
    page.keyboard.press("Enter")
    expect(page.locator("[data-verb=resume]")).to_be_visible()
    assert running.status().paused is not None
    page.locator("[data-verb=resume]").press("Enter")
    expect(page.locator("[data-verb=pause]")).to_be_visible()
    assert running.status().paused is None


def test_a_column_is_sorted_from_the_keyboard(window: Window, ended: Run) -> None:
    page = window.go("/lanes")
    head = page.locator("#lanes th", has_text="Errors")
    expect(head).to_be_visible()  # nothing that is hidden can be focused
    head.locator("button").press("Enter")
    expect(head).to_have_attribute("aria-sort", "descending")
    first = page.locator("#lanes tbody tr").first  # another file's lane of a missing model may stand there
    expect(first).to_contain_text("100 %")
    expect(first).to_contain_text("does not exist")


def test_without_redis_a_banner_says_so_and_no_page_claims_to_be_empty(window: Window, ended: Run) -> None:
    page = window.page
    page.route("**/fairlane/data/**", _gone)
    for path in ("/lanes", "/runs", "/teams"):
        window.go(path)
        expect(page.get_by_role("alert").first).to_contain_text("Redis does not answer. Nothing can be shown")
        assert not page.locator(".fairlane-empty:visible").count()
    page.unroute("**/fairlane/data/**")
    expect(page.locator("#teams")).to_contain_text("search")
    expect(page.locator("#fairlane-banner")).to_be_empty()


def test_when_redis_goes_what_is_shown_says_its_age_and_its_buttons_rest(
    window: Window, running: Run
) -> None:
    page = window.go("/runs")
    button = page.locator("#runs [data-verb=pause]").first
    expect(button).to_be_enabled()
    page.route("**/fairlane/data/**", _gone)
    expect(page.locator("#fairlane-banner")).to_contain_text("Redis does not answer. What you see is of ")
    expect(button).to_be_disabled()
    page.unroute("**/fairlane/data/**")
    expect(button).to_be_enabled()


def test_runs_beyond_the_first_page_are_reached_by_links(window: Window, ended: Run) -> None:
    page = window.page
    page.route("**/fairlane/data/runs?page=*", _one_of_three)
    window.go("/runs")
    expect(page.locator("#pages")).to_have_text("Page 1 of 3Older")
    page.locator("#pages a", has_text="Older").click()
    expect(page.locator("#pages")).to_have_text("NewerPage 2 of 3Older")


def test_failed_attempts_are_failed_tasks_on_flowers_own_pages(deployment: Cluster, window: Window) -> None:
    def answered() -> bool:
        """Flower hears of tasks some time after its start."""
        deployment.client.submit(numbered(2), "{{ n }}", model=f"sim:no-{deployment.client.team}").wait()
        page = window.go("/tasks")
        page.wait_for_selector("#tasks-table tbody tr")
        page.locator("[data-task-state=FAILURE]").click()
        page.wait_for_selector("#tasks-table tbody tr")
        return "PermanentFailure" in page.locator("#tasks-table").inner_text()

    wait_until(answered)
    failed = window.go("/workers").locator("#workers-failed")
    expect(failed).not_to_have_text("0")
    expect(failed).not_to_have_text("—")


def _gone(route: Route) -> None:
    route.fulfill(status=503, content_type="application/json", body=GONE)


def _one_of_three(route: Route) -> None:
    answer = route.fetch()
    route.fulfill(response=answer, json=answer.json() | {"pages": 3})
