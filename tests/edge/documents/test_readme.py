"""Commands, options, programs, settings and links in README and the guides exist."""

from __future__ import annotations

import ast
import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import typer

from fairlane.cli.main import app
from fairlane.config.loader import load_settings
from fairlane.model.job import TERMINAL, TRANSITIONS
from tests.support.documents import (
    DECISIONS,
    GUIDES,
    ROOT,
    Block,
    anchors,
    blocks,
    coded,
    commands,
    links,
    table,
)

ARCHITECTURE = ROOT / "docs" / "architecture.md"
SVG = "{http://www.w3.org/2000/svg}"


def _named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _all_blocks(language: str) -> list[Block]:
    return [block for path in GUIDES for block in blocks(path, language)]


@pytest.fixture(scope="module")
def targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


@pytest.mark.parametrize("path", GUIDES, ids=_named)
def test_every_make_target_that_is_named_exists(path: Path, targets: set[str]) -> None:
    for words in commands(path):
        if words[0] == "make":
            asked = {word for word in words[1:] if "=" not in word and not word.startswith("-")}
            assert asked <= targets, words


@pytest.mark.parametrize("path", GUIDES, ids=_named)
def test_every_command_and_option_that_is_named_exists(path: Path) -> None:
    for words in commands(path):
        if words[0] == "fairlane":
            assert _unknown(words[1:]) == [], words


@pytest.mark.parametrize("block", _all_blocks("python"), ids=str)
def test_a_python_example_compiles_and_imports_what_is_there(block: Block) -> None:
    tree = ast.parse(block.text, filename=str(block))
    compile(tree, str(block), "exec")
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fairlane"):
            module = import_module(str(node.module))
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


@pytest.mark.parametrize("block", _all_blocks("toml"), ids=str)
def test_a_configuration_example_is_valid(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "fairlane.toml"
    file.write_text(block.text, encoding="utf-8")
    load_settings(file, environ={})


@pytest.mark.parametrize("path", [*GUIDES, ROOT / "CHANGELOG.md", *DECISIONS], ids=_named)
def test_every_link_leads_somewhere(path: Path) -> None:
    for link in links(path):
        target, _, anchor = link.partition("#")
        file = (path.parent / target).resolve() if target else path
        assert file.exists(), link
        assert not anchor or anchor in anchors(file), link


def test_the_state_diagram_is_the_graph_of_the_code() -> None:
    (diagram,) = blocks(ARCHITECTURE, "mermaid")
    edges = set(re.findall(r"^\s*(\S+) --> ([^\s:]+)", diagram.text, re.MULTILINE))
    graph = {(str(state), str(after)) for state, following in TRANSITIONS.items() for after in following}
    ends = {(str(state), "[*]") for state in TERMINAL}
    assert edges == graph | ends | {("[*]", "waiting")}


def test_scripts_on_the_path_of_a_job_exist() -> None:
    scripts = {path.stem for path in (ROOT / "shared" / "fairlane" / "store" / "lua").rglob("*.lua")}
    rows = table(ARCHITECTURE, "", "file", "decides", "scripts")
    assert {script for row in rows for script in coded(row["scripts"])} <= scripts


def test_pictures_are_well_formed_and_say_what_they_show() -> None:
    for picture in (ROOT / "docs" / "images").glob("*.svg"):
        names = {child.tag.rpartition("}")[2] for child in ElementTree.parse(picture).getroot()}  # noqa: S314
        assert {"title", "desc"} <= names


def test_the_picture_of_rooms_has_the_layers_that_imports_keep() -> None:
    """Rooms of one layer stand side by side, and each layer stands above the next."""
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (layers,) = [each["layers"] for each in linter["contracts"] if each.get("containers") == ["fairlane"]]
    picture = ElementTree.parse(ROOT / "docs" / "images" / "rooms.svg")  # noqa: S314
    height = {
        room.text: float(text.attrib["y"])
        for text in picture.iter(f"{SVG}text")
        if (room := text.find(f"{SVG}tspan")) is not None
    }
    drawn = [{height[room] for room in layer.split(" | ")} for layer in layers]
    assert all(len(each) == 1 for each in drawn)
    assert [min(each) for each in drawn] == sorted({min(each) for each in drawn})


def _root() -> Any:
    return typer.main.get_command(app)


def _unknown(words: list[str]) -> list[str]:
    """Words that are not a command where one is required, and options that the command does not have."""
    command, known, unknown = _root(), {"--help", "-h"}, []
    known |= _options(command)
    for word in words:
        if word == "--":
            break
        if word.startswith("-"):
            unknown += [] if word.partition("=")[0] in known else [word]
        elif hasattr(command, "commands"):
            inner = command.get_command(None, word)
            if inner is not None:
                command, known = inner, known | _options(inner)
            elif not getattr(command, "invoke_without_command", False):
                return [*unknown, word]
    return unknown


def _options(command: Any) -> set[str]:
    return {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
