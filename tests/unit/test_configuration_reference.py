"""The configuration page says what the settings models say."""

from __future__ import annotations

import runpy
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel

from fairlane.config import keys
from fairlane.config.keys import all_keys
from fairlane.config.loader import load_settings

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "configuration.md"
SCRIPT = runpy.run_path(str(ROOT / "deploy" / "site" / "configuration.py"))
render, main = SCRIPT["render"], SCRIPT["main"]


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "write it anew with `make docs-config`"


def test_every_key_is_described() -> None:
    page = render()
    for key in all_keys():
        assert key.description, key.path
        assert f"| `{key.name}` |" in page
        assert f"`{key.variable}`" in page


def test_every_table_has_one_section() -> None:
    heads = [line for line in render().splitlines() if line.startswith("## `[")]
    assert len(heads) == len(set(heads))


def test_a_table_that_may_be_left_out_is_described_too() -> None:
    class Inner(BaseModel):
        """An inner table."""

        url: str

    class Outer(BaseModel):
        """An outer one."""

        inner: Inner | None = None

    assert [key.path for key in keys._walk(Outer, ())] == [("inner", "url")]


def test_every_row_has_as_many_cells_as_the_head() -> None:
    rows = [line for line in render().splitlines() if line.startswith("|")]
    assert {row.replace(r"\|", "").count("|") for row in rows} == {6}


def test_the_example_is_a_valid_configuration(tmp_path: Path) -> None:
    example = render().split("```toml\n")[1].split("```")[0]
    file = tmp_path / "fairlane.toml"
    file.write_text(example, encoding="utf-8")
    assert set(tomllib.loads(example)) <= set(load_settings(file, {}).model_fields_set)


def test_the_command_writes_the_page_where_it_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "page.md"
    monkeypatch.setattr("sys.argv", ["reference", str(target)])
    main()
    assert target.read_text(encoding="utf-8") == render()
