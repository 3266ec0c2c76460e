"""Names, outputs and errors that look like markup: pages show them, and a browser runs none of them."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from fairlane import Run, exact_match
from tests.edge.browser.conftest import Window
from tests.support.cluster import Cluster, whole

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

MARKUP = "<script>window.ran=1</script><img src=x onerror=window.ran=1>\"'&{{ 7*7 }}${7*7}]]>"
SIGNS = "\x1b[31mred\x1b[0m\x07 \u202egnp.exe\u202c\u2066 \x9b \ufeff"
MODEL = "<img src=x onerror=window.ran=1>"
LANE = f"sim:{MODEL}"
JAVASCRIPT = "javascript:window.ran=1"


def hostile_run(deployment: Cluster) -> Run:
    echo = deployment.new_model(output="echo", latency_ms=20)
    rows = [
        {"q": MARKUP + SIGNS, "m": echo, "expected": MARKUP, MARKUP: SIGNS},
        {"q": JAVASCRIPT, "m": MODEL, "expected": JAVASCRIPT, MARKUP: MARKUP},
    ]
    run = deployment.client.submit(
        rows,
        "{{ q }}",
        model="sim:{{ m }}",
        evaluators=[exact_match("expected", name="right")],
        name=MARKUP,
        check=False,
    )
    whole(run)
    return run


def test_nothing_that_a_team_wrote_is_run_and_all_of_it_is_shown(deployment: Cluster, window: Window) -> None:
    run = hostile_run(deployment)
    shown = {
        "/lanes": MODEL,
        f"/lane/{quote(LANE, safe='')}": MODEL,
        "/runs": MARKUP,
        f"/run/search/{run.id}": MARKUP,
        f"/run/search/{run.id}/0": "succeeded",
        f"/run/search/{run.id}/1": MODEL,
        "/teams": "search",
        "/tasks": "",
        "/workers": "",
    }
    for path, words in shown.items():
        page = window.go(path)
        if path not in ("/tasks", "/workers"):
            expect(page.locator("#fairlane-status")).to_contain_text("Updated")
            expect(page.locator("main")).to_contain_text(words)
        assert page.evaluate("window.ran") is None, path
        assert page.locator("main img[src=x], main script:not([src])").count() == 0, path
        assert page.locator("a[href^='javascript:' i]").count() == 0, path
        text = page.locator("body").inner_text()
        assert not {sign for sign in SIGNS if not sign.isprintable()} & set(text), path
    assert window.complaints == []
