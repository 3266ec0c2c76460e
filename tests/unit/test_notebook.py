"""Progress in a notebook: what the kernel is asked to display, through its own display hook."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest
from redis import Redis
from rich.console import Console

from fairlane.client.deployment import finish
from fairlane.client.following.notebook import REDRAWN_EVERY_MS, Bar, Cell, html_of
from fairlane.client.following.progress import open_progress
from fairlane.core.clock import ManualClock
from fairlane.model.run_status import Pause
from tests.support.stage import Stage


class Kernel:
    """Stands for the display of a kernel: every bundle, and how it was sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, str]]] = []

    def display(self, bundle: dict[str, str], *, raw: bool, display_id: bool) -> Kernel:
        assert raw
        assert display_id
        self.sent.append(("display", bundle))
        return self

    def update(self, bundle: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.sent.append(("update", bundle))


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel, module = Kernel(), ModuleType("IPython.display")
    module.display = kernel.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return kernel


def notebook() -> Console:
    return Console(file=io.StringIO(), force_jupyter=True)


def test_a_wait_is_shown_in_one_output_that_is_redrawn(real_redis: Redis, kernel: Kernel) -> None:
    stage = Stage(real_redis)
    run = stage.client.submit([{"n": n} for n in range(4)], "{{ n }}", model="sim:fast", name="<b>sums</b>")
    with open_progress(stage.clock, notebook()) as view:
        stage.then(stage.admit, lambda: stage.answer(run.id, 2), lambda: stage.answer(run.id, 2))
        finish(run._ending(view), stage)
    assert [how for how, _ in kernel.sent] == ["display", *["update"] * (len(kernel.sent) - 1)]
    last = kernel.sent[-1][1]
    assert last["text/plain"].splitlines()[0].startswith("<b>sums</b>: 4/4")
    assert "<b>" not in last["text/html"]
    page = ElementTree.fromstring(last["text/html"])  # noqa: S314
    assert [(bar.get("value"), bar.get("max")) for bar in page.iter("progress")] == [("4", "4"), ("4", "4")]


def test_a_pause_and_a_silent_redis_are_reported(real_redis: Redis, kernel: Kernel) -> None:
    stage = Stage(real_redis)
    run = stage.client.submit([{"n": 1}], "{{ n }}", model="sim:fast")
    stage.admit()
    with open_progress(stage.clock, notebook()) as view:
        view.show(replace(run.status(), paused=Pause(0, "ann@host")))
        stage.clock.advance(1)
        view.silent(7)
    assert "paused by ann@host" in kernel.sent[0][1]["text/plain"]
    assert "not answered for 7 s" in kernel.sent[1][1]["text/html"]


def test_a_browser_is_not_flooded_and_sees_the_last_state() -> None:
    kernel, clock = Kernel(), ManualClock()
    cell = Cell(clock, kernel.display)
    for done in range(100):
        cell.draw([Bar("r", done, 100, "")])
        clock.advance(0.01)
    cell.draw([Bar("r", 100, 100, "")], at_once=True)
    assert len(kernel.sent) <= 1000 / REDRAWN_EVERY_MS + 2
    assert "100/100" in kernel.sent[-1][1]["text/plain"]


@pytest.mark.parametrize("words", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "a & b"])
def test_names_are_text_wherever_they_come_from(words: str) -> None:
    page = ElementTree.fromstring(html_of([Bar(words, 1, 2, words)]))  # noqa: S314
    assert next(cell.text for cell in page.iter("td")) == words
    assert {each.tag for each in page.iter()} == {"table", "tr", "td", "progress"}


def test_nothing_of_it_is_needed_where_there_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    blocked: Any = None
    monkeypatch.setitem(sys.modules, "IPython", blocked)
    with open_progress(ManualClock(), Console(file=io.StringIO(), width=80)) as view:
        view.silent(1)
