"""The documentation's site: its navigation has every page, its reference every public name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

import fairlane
import fairlane.testing
from tests.support.documents import README, ROOT, links

DOCS = ROOT / "docs"
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
BORROWED = {"index.md": "README.md", "changes.md": "CHANGELOG.md"}
PAGES = sorted(DOCS.rglob("*.md"))
SHOWN = re.findall(r"^::: ([\w.]+)$", (DOCS / "api.md").read_text(encoding="utf-8"), re.MULTILINE)


def _entries(tree: Any) -> Iterator[str]:
    """Pages and folders of a navigation, in order."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, dict):
        for each in tree.values():
            yield from _entries(each)
    else:
        for each in tree:
            yield from _entries(each)


def test_the_navigation_has_every_page_once() -> None:
    entries = list(_entries(CONFIG["nav"]))
    folders = tuple(entry for entry in entries if entry.endswith("/"))
    pages = {path.relative_to(DOCS).as_posix() for path in PAGES}
    inside = {page for page in pages if page.startswith(folders)}

    assert len(entries) == len(set(entries))
    assert set(entries) - set(folders) == (pages - inside) | set(BORROWED)
    assert all((ROOT / path).is_file() for path in BORROWED.values())


def test_the_readme_leads_to_every_guide() -> None:
    assert {f"docs/{path.name}" for path in DOCS.glob("*.md")} <= {
        link.partition("#")[0] for link in links(README)
    }


@pytest.mark.parametrize("module", [fairlane, fairlane.testing], ids=lambda module: module.__name__)
def test_the_reference_has_every_public_name_once(module: Any) -> None:
    public = {f"{module.__name__}.{name}" for name in module.__all__} - {"fairlane.__version__"}
    assert public <= set(SHOWN)
    assert len(SHOWN) == len(set(SHOWN))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(DOCS).as_posix())
def test_a_list_begins_after_an_empty_line(path: Any) -> None:
    """MkDocs takes it for a part of the paragraph above otherwise, unlike hosts of repositories."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    glued = re.findall(r"^(?![-*|#>]|\d+\. |\s).+\n(?:[-*]|\d+\.) .+$", text, re.MULTILINE)
    assert glued == []


def test_make_docs_ends_with_an_error_where_there_is_a_warning() -> None:
    """With ``--quiet`` MkDocs counts no warnings, and ``--strict`` means nothing."""
    assert "/mkdocs build --strict\n" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_nothing_that_is_configured_is_loaded_from_elsewhere() -> None:
    assert CONFIG["theme"]["font"] is False
    assert {"extra_css", "extra_javascript", "extra", "repo_url"}.isdisjoint(CONFIG)
