"""What README and guides tell people to type exists, and what they show is what the code says."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import typer

from fairlane.cli.main import app
from fairlane.configuration import load_settings
from fairlane.job import TERMINAL, TRANSITIONS
from tests.support.documents import (
    DECISIONS,
    GUIDES,
    README,
    ROOT,
    Block,
    anchors,
    blocks,
    coded,
    commands,
    links,
    table,
)


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


def test_the_readme_lists_every_command() -> None:
    listed = {code.split()[1] for row in table(README, "command", "does") for code in coded(row["command"])}
    assert listed == set(_root().commands)


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
    (diagram,) = blocks(README, "mermaid")
    edges = set(re.findall(r"^\s*(\S+) --> ([^\s:]+)", diagram.text, re.MULTILINE))
    graph = {(str(state), str(after)) for state, following in TRANSITIONS.items() for after in following}
    ends = {(str(state), "[*]") for state in TERMINAL}
    assert edges == graph | ends | {("[*]", "waiting")}


def test_a_jobs_path_names_six_files_at_most_and_scripts_that_exist() -> None:
    rows = table(README, "", "file", "what happens", "scripts")
    assert [row[""] for row in rows] == [str(n) for n in range(1, len(rows) + 1)]
    assert len(rows) <= 6
    for row in rows:
        for script in coded(row["scripts"]):
            assert (ROOT / "shared" / "fairlane" / "store" / "lua" / f"{script}.lua").is_file()


def test_pictures_are_well_formed_and_say_what_they_show() -> None:
    for picture in (ROOT / "docs" / "images").glob("*.svg"):
        names = {child.tag.rpartition("}")[2] for child in ElementTree.parse(picture).getroot()}  # noqa: S314
        assert {"title", "desc"} <= names


def _root() -> Any:
    return typer.main.get_command(app)


def _unknown(words: list[str]) -> list[str]:
    """Words that are no command where one has to be, and options that the command does not take."""
    command, known, unknown = _root(), {"--help", "-h"}, []
    known |= _options(command)
    for word in words:
        if word == "--":
            break
        if word.startswith("-"):
            unknown += [] if word.partition("=")[0] in known else [word]
        elif hasattr(command, "commands"):
            inner = command.commands.get(word)
            if inner is not None:
                command, known = inner, known | _options(inner)
            elif not getattr(command, "invoke_without_command", False):
                return [*unknown, word]
    return unknown


def _options(command: Any) -> set[str]:
    return {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
