"""Flower in a browser: every page is there without a complaint, charts move, buttons do what they say."""

from __future__ import annotations

from itertools import pairwise

import pytest
from playwright.sync_api import expect

from fairlane import Run, RunState, exact_match, llm_judge
from tests.edge.browser.conftest import Window
from tests.support.cluster import Cluster, all_succeeded, numbered
from tests.support.wait import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

MOVES_S = 30.0  # a sample is written every five seconds
SECRET = "a question that nobody else may read"
LATEST = "() => { const at = window.fairlaneCharts.rates.data[0]; return at.length ? at[at.length - 1] : 0; }"
MOST = "() => Math.max(0, ...window.fairlaneCharts.rates.data[2].filter((rate) => rate !== null))"


def judged(deployment: Cluster, rows: int = 30) -> Run:
    judge = llm_judge("sim:judge", "Is {{ output }} right?", choices={"yes": 1.0, "no": 0.0})
    return deployment.client.submit(
        numbered(rows, expected="x"),
        f"{SECRET} {{{{ n }}}}",
        model="sim:fast",
        evaluators=[judge, exact_match("expected")],
        name="judged",
    )


def long_run(deployment: Cluster) -> Run:
    """One that takes an hour: its lane may start a call every two seconds."""
    run = deployment.client.submit(numbered(1800), "question {{ n }}", model="sim:slow", name="long")
    wait_until(lambda: run.status().state is RunState.RUNNING)
    return run


def test_every_page_is_there_and_nothing_complains(deployment: Cluster, window: Window) -> None:
    run = judged(deployment)
    all_succeeded(run)
    shown = {
        "/lanes": "sim:fast",
        "/lane/sim%3Afast": "requests/min",
        "/runs": "judged",
        f"/run/search/{run.id}": "llm_judge",
        f"/run/search/{run.id}/3": "succeeded",
        "/teams": "1,000,000 tokens a day",
    }
    for path, words in shown.items():
        page = window.go(path)
        expect(page.locator("#fairlane-status")).to_contain_text("Updated")
        expect(page.locator("main")).to_contain_text(words)
        assert SECRET not in page.content()
        assert page.locator(".app-nav .nav-link.active").count() == 1
    for path in ("/workers", "/tasks", "/broker"):
        expect(window.go(path).locator(".app-nav .nav-link", has_text="Lanes")).to_be_visible()
    assert window.complaints == []


def test_the_pages_are_reached_from_flowers_own_navigation(window: Window) -> None:
    page = window.go("/workers")
    for name in ("Lanes", "Runs", "Teams"):
        page.locator(".app-nav .nav-link", has_text=name).first.click()
        expect(page.locator(".page-eyebrow")).to_have_text(name)
        expect(page.locator(".app-nav .nav-link.active")).to_have_text(name)
    assert window.complaints == []


def test_a_chart_moves_with_the_calls(deployment: Cluster, window: Window) -> None:
    run = long_run(deployment)
    page = window.go("/lane/sim%3Aslow")
    wait_until(lambda: page.evaluate(MOST) > 0, timeout=MOVES_S, interval=0.2)
    expect(page.locator("#cards")).to_contain_text("configured")
    moments = [page.evaluate(LATEST)]
    for _ in range(2):
        wait_until(lambda: page.evaluate(LATEST) > moments[-1], timeout=MOVES_S, interval=0.2)
        moments.append(page.evaluate(LATEST))
    assert all(later > earlier for earlier, later in pairwise(moments))
    assert page.locator("#rates canvas").bounding_box()
    page.locator("[data-span=minutes]").click()
    expect(page.locator("[data-span=minutes]")).to_have_class("btn btn-outline-secondary active")
    run.cancel()
    assert window.complaints == []


def test_a_run_is_paused_resumed_and_cancelled_by_its_buttons(deployment: Cluster, window: Window) -> None:
    run = long_run(deployment)
    page = window.go(f"/run/search/{run.id}")
    state = page.locator("#cards .badge").first

    page.locator("[data-verb=pause]").click()
    expect(state).to_have_text("paused")
    reported = run.status().paused
    assert reported is not None
    assert reported.by == "me (Flower)"
    page.locator("[data-verb=resume]").click()
    expect(state).to_have_text("running")
    assert run.status().paused is None

    page.once("dialog", lambda question: question.dismiss())
    page.locator("[data-verb=cancel]").click()
    assert run.status().state is RunState.RUNNING
    page.once("dialog", lambda question: question.accept())
    page.locator("[data-verb=cancel]").click()
    expect(state).to_have_text("cancelled")
    expect(page.locator("[data-verb]")).to_have_count(0)
    assert run.status().state is RunState.CANCELLED
    assert window.complaints == []


def test_tasks_and_items_report_their_attempts_in_our_words(deployment: Cluster, window: Window) -> None:
    def told_of(run: Run) -> bool:
        window.go("/tasks")
        window.page.wait_for_selector("#tasks-table tbody tr")
        return run.id in window.page.locator("#tasks-table").inner_text()

    def hears() -> bool:
        """Flower hears of tasks some time after its start: of some that are under way then, only the end."""
        run = judged(deployment, 5)
        all_succeeded(run)
        return told_of(run)

    wait_until(hears)
    run = judged(deployment, 5)
    all_succeeded(run)
    wait_until(lambda: told_of(run))
    row = window.page.locator("#tasks-table tbody tr", has_text=run.id).first
    expect(row).to_contain_text("search")
    expect(row).to_contain_text("sim:")
    expect(row).to_contain_text("Success")

    page = window.go(f"/run/search/{run.id}/3")
    attempt = page.locator("section[aria-label=task] tbody tr")
    expect(attempt).to_have_count(1)
    expect(attempt).to_contain_text("sim:fast")
    expect(attempt).to_contain_text("Success")
    attempt.locator("a").first.click()
    expect(page.locator(".detail-list")).to_contain_text(f"attempt 1 of job {3 * 2}")
    assert SECRET not in page.content()
    assert window.complaints == []


def test_a_table_keeps_its_filter_and_its_order_while_it_is_drawn_anew(
    deployment: Cluster, window: Window
) -> None:
    for team in ("ads", "search"):
        all_succeeded(
            deployment.client_of(team).submit(numbered(2), "again {{ n }}", model="sim:fast", name=team)
        )
    page = window.go("/runs")
    rows = page.locator("#runs tbody tr")
    expect(rows.first).to_be_visible()
    page.locator("#runs input[type=search]").fill("ads")
    expect(rows).to_have_count(1)
    status = page.locator("#fairlane-status")
    expect(status).not_to_have_text(status.inner_text())
    expect(rows).to_have_count(1)
    page.locator("#runs input[type=search]").fill("")
    team = page.locator("#runs th", has_text="Team")
    team.click()
    expect(team).to_have_attribute("aria-sort", "ascending")
    assert (
        sorted(page.locator("#runs tbody td:nth-child(2)").all_inner_texts())
        == page.locator("#runs tbody td:nth-child(2)").all_inner_texts()
    )
    assert window.complaints == []
