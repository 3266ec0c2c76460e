"""The documentation's site, built as `make docs` does."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fairlane.config.environment import process_environment
from tests.support.documents import ROOT

pytestmark = pytest.mark.slow(seconds=10)

LOADED_BY = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
NOT_LOADED = {"canonical", "prev", "next", "edit"}
"""Values of a link element's ``rel`` for which a browser loads nothing."""


class Loads(HTMLParser):
    """The addresses that a browser loads to show a page, and the classes of its elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.classes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.classes.update(given.get("class", "").split())
        address = given.get(LOADED_BY.get(tag, ""))
        if address and given.get("rel") not in NOT_LOADED:
            self.addresses.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, newly built; a warning fails the test."""
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(directory)]
    environment = {**process_environment(), "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    return directory


def test_every_guide_and_decision_is_a_page(site: Path) -> None:
    written = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    written = {path.with_name("index.html") if path.stem == "README" else path for path in written}
    assert {path for path in written if not (site / path).is_file()} == set()
    assert "Fairlane" in (site / "index.html").read_text(encoding="utf-8")
    assert "Unreleased" in (site / "changes.html").read_text(encoding="utf-8")


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        loads = Loads(path.read_text(encoding="utf-8"))
        assert loads.addresses
        assert [each for each in loads.addresses if "//" in each] == [], path
        assert "mermaid" not in loads.classes, f"{path}: Material would load a script to draw it"
    for path in site.rglob("*.css"):
        assert "url(http" not in path.read_text(encoding="utf-8")


def test_links_to_sources_lead_to_pages_that_show_them(site: Path) -> None:
    page = (site / "architecture.html").read_text(encoding="utf-8")
    shown = (site / "source" / "shared" / "fairlane" / "client" / "client.py.html").read_text(
        encoding="utf-8"
    )
    assert 'href="source/shared/fairlane/client/client.py.html"' in page
    assert "class" in shown
    assert "RunNotFound" in shown


def test_search_works_in_pages_that_are_opened_from_disk(site: Path) -> None:
    """The index is a script, since a page from disk fetches nothing, and a shim stands in for web workers."""
    assert (site / "search" / "search_index.js").read_text(encoding="utf-8").startswith("var __index = {")
    assert "location.protocol" in (site / "assets" / "iframe-worker.js").read_text(encoding="utf-8")
    assert 'src="assets/iframe-worker.js"' in (site / "index.html").read_text(encoding="utf-8")


def test_the_reference_is_made_from_docstrings(site: Path) -> None:
    page = (site / "api.html").read_text(encoding="utf-8")
    assert 'id="fairlane.Client.submit"' in page
    assert "a clock that only tests move" in page
