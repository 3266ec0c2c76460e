"""The documentation's site: its navigation has every page, and its reference every public name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

import fairlane
import fairlane.testing
from tests.support.documents import DECISIONS, README, ROOT, links

DOCS = ROOT / "docs"
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
BORROWED = {
    "index.md": "README.md",
    "changes.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
}
PAGES = sorted(DOCS.rglob("*.md"))
SHOWN = re.findall(r"^::: ([\w.]+)$", (DOCS / "api.md").read_text(encoding="utf-8"), re.MULTILINE)


def _entries(tree: Any) -> Iterator[str]:
    """Pages of a navigation, in order."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, dict):
        for each in tree.values():
            yield from _entries(each)
    else:
        for each in tree:
            yield from _entries(each)


def test_the_navigation_has_every_page_once_and_the_index_of_decisions_for_all_of_them() -> None:
    entries = list(_entries(CONFIG["nav"]))
    pages = {path.relative_to(DOCS).as_posix() for path in PAGES}
    decisions = {path.relative_to(DOCS).as_posix() for path in DECISIONS}

    assert len(entries) == len(set(entries))
    assert set(entries) == (pages - decisions) | set(BORROWED)
    assert all((ROOT / path).is_file() for path in BORROWED.values())


def test_the_page_of_all_pages_has_every_page_and_readme_leads_to_it() -> None:
    pages = {f"../{BORROWED[page]}" if page in BORROWED else page for page in _entries(CONFIG["nav"])}
    linked = {link.partition("#")[0] for link in links(DOCS / "contents.md")}
    assert linked == pages - {"contents.md", "../README.md"}
    assert "docs/contents.md" in links(README)


@pytest.mark.parametrize("module", [fairlane, fairlane.testing], ids=lambda module: module.__name__)
def test_the_reference_has_every_public_name_once(module: Any) -> None:
    public = {f"{module.__name__}.{name}" for name in module.__all__} - {"fairlane.__version__"}
    assert public <= set(SHOWN)
    assert len(SHOWN) == len(set(SHOWN))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(DOCS).as_posix())
def test_a_list_begins_after_an_empty_line(path: Any) -> None:
    """Otherwise MkDocs renders the list as part of the paragraph above, unlike hosts of repositories."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    glued = re.findall(r"^(?![-*|#>]|\d+\. |\s).+\n(?:[-*]|\d+\.) .+$", text, re.MULTILINE)
    assert glued == []


def test_make_docs_ends_with_an_error_where_there_is_a_warning() -> None:
    """With ``--quiet`` MkDocs counts no warnings, and ``--strict`` has no effect."""
    assert "/mkdocs build --strict\n" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_nothing_that_is_configured_is_loaded_from_elsewhere() -> None:
    assert CONFIG["theme"]["font"] is False
    assert {"extra_css", "extra_javascript", "repo_url"}.isdisjoint(CONFIG)
    assert CONFIG["extra"] == {"polyfills": ["assets/iframe-worker.js"]}
