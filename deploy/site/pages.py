"""Adds to the site what is outside docs/: README, changes, and the sources that pages link to."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

BORROWED = {
    "index.md": "README.md",
    "changes.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
}
"""Pages of the site whose files are at the root of the repository, where hosts of repositories show them."""

SOURCES = "source"
"""The site's folder for files and folders outside docs/ that some page links to."""

SHIM = "assets/iframe-worker.js"
"""Lets Material's search run in pages opened from disk, where browsers start no web workers.

The file is the shim of iframe-worker 1.0.4, unchanged, under the MIT licence beside it.
"""

NAMED_IN_SHORT = {"Dockerfile": "docker", "Makefile": "make"}
NOT_SHOWN = ("__pycache__",)
NOT_SEARCHED = "---\nsearch: {exclude: true}\n---\n"

_PIECES = re.compile(r"^```.*?^```$|`[^`\n]+`|(?<=\]\()[^)\s]+(?=\))", re.MULTILINE | re.DOTALL)
_DIAGRAM = re.compile(r"^```mermaid\nstateDiagram-v2\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_EDGE = re.compile(r"^\s*(\S+) --> ([^\s:]+)(?:: (.+))?$", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make anchors as hosts of Markdown do."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = _anchor
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the borrowed pages, the shim of the search, and a page for each source that a page links to."""
    root = _root(config)
    shim = (Path(__file__).parent / "iframe-worker" / "iframe-worker.js").read_text(encoding="utf-8")
    files.append(File.generated(config, SHIM, content=shim))
    pages = {file.src_uri: file.content_string for file in files.documentation_pages()}
    for uri, path in BORROWED.items():
        pages[uri] = (root / path).read_text(encoding="utf-8")
        files.append(File.generated(config, uri, content=pages[uri]))
    linked = {path for uri, text in pages.items() for path in _outside(uri, text) if (root / path).exists()}
    for path in sorted(linked):
        page, text = _source_page(path), _shown(root / path, path)
        files.append(File.generated(config, page, content=text, inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links that leave docs/ to pages of the site, and turn a state diagram into a table."""
    uri, root = page.file.src_uri, _root(config)
    if uri.startswith(f"{SOURCES}/"):
        return markdown

    def relinked(piece: re.Match[str]) -> str:
        target, mark, anchor = piece[0].partition("#")
        path = _repository_path(uri, target)
        if piece[0].startswith("`") or "://" in piece[0] or path is None or not (root / path).exists():
            return piece[0]
        return posixpath.relpath(_page_of(path), posixpath.dirname(uri) or ".") + mark + anchor

    return _DIAGRAM.sub(_as_table, _PIECES.sub(relinked, markdown))


def _anchor(heading: str, separator: str) -> str:
    """The anchor of a heading, as hosts of Markdown make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def _root(config: MkDocsConfig) -> Path:
    return Path(config.config_file_path).parent


def _repository_path(uri: str, target: str) -> str | None:
    """The path in the repository of a page's relative link; ``None`` for a link within the page."""
    home = BORROWED.get(uri, f"docs/{uri}")
    return posixpath.normpath(posixpath.join(posixpath.dirname(home), target)) if target else None


def _outside(uri: str, text: str) -> set[str]:
    """Paths outside docs/ that a page links to."""
    found = set()
    for piece in _PIECES.findall(text):
        path = _repository_path(uri, piece.partition("#")[0])
        if not piece.startswith("`") and "://" not in piece and path is not None:
            found.add(path)
    return {path for path in found if _page_of(path).startswith(f"{SOURCES}/")}


def _page_of(path: str) -> str:
    """The page of the site that shows a path of the repository."""
    for uri, borrowed in BORROWED.items():
        if path == borrowed:
            return uri
    return path.removeprefix("docs/") if path.startswith("docs/") else _source_page(path)


def _source_page(path: str) -> str:
    return f"{SOURCES}/{path}.md"


def _shown(path: Path, name: str) -> str:
    """A file as a block of code, a folder as a list of its files."""
    if path.is_dir():
        inside = sorted(each.name + "/" * each.is_dir() for each in path.iterdir() if _is_shown(each))
        return f"{NOT_SEARCHED}# {name}\n\n" + "\n".join(f"- `{each}`" for each in inside)
    language = NAMED_IN_SHORT.get(path.name, path.suffix.removeprefix(".") or "text")
    return f"{NOT_SEARCHED}# {name}\n\n~~~~~~{language}\n{path.read_text(encoding='utf-8')}\n~~~~~~\n"


def _is_shown(path: Path) -> bool:
    return path.name not in NOT_SHOWN and not path.name.startswith(".")


def _as_table(diagram: re.Match[str]) -> str:
    """The edges between states that a Mermaid diagram draws."""
    edges = [edge for edge in _EDGE.findall(diagram[1]) if "[*]" not in edge]
    rows = [f"| `{before}` | `{after}` | {why} |" for before, after, why in edges]
    return "\n".join(["| from | to | when |", "|---|---|---|", *rows])
