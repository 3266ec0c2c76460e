"""Presets of providers that other packages add."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest
from pydantic import ValidationError

from fairlane.config.connections import presets
from fairlane.config.connections.connection import Connection
from fairlane.config.connections.presets import PRESET_GROUP, PRESETS, all_presets
from tests.support.documents import ROOT, blocks

(GUIDE,) = blocks(ROOT / "docs" / "providers.md", "python", "Known providers")
ADDED: dict[str, Any] = {}
exec(GUIDE.text, ADDED)  # noqa: S102 - the guide's own example
ACME = ADDED["ACME"]
OTHER = "no preset"


@pytest.fixture(autouse=True)
def packages(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    places = {"acme": "ACME", "openai": "ACME", "other": "OTHER", "broken": "MISSING"}
    points = [EntryPoint(name, f"{__name__}:{value}", PRESET_GROUP) for name, value in places.items()]

    def found(group: str, **params: Any) -> EntryPoints:
        wanted = EntryPoints(points).select(group=group, **params)
        return wanted if params else wanted.select(name="acme") or wanted

    monkeypatch.setattr(presets, "entry_points", found)
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    presets._added.cache_clear()
    yield
    presets._added.cache_clear()


def test_a_connection_has_the_defaults_of_a_packages_preset() -> None:
    made = Connection.model_validate({"provider": "acme"})
    assert (made.base_url, made.api_key_env) == ("https://api.acme.example/v1", "ACME_API_KEY")
    assert (made.preset, made.lane_parts) == (ACME, ("credential", "model"))


def test_it_is_listed_after_ours_and_a_package_replaces_none_of_them() -> None:
    assert list(all_presets()) == [*PRESETS, "acme"]
    assert Connection.model_validate({"provider": "openai"}).preset is PRESETS["openai"]


def test_a_near_name_is_corrected_to_it() -> None:
    with pytest.raises(ValidationError) as caught:
        Connection.model_validate({"provider": "acmee"})
    assert "Did you mean 'acme'?" in caught.value.errors()[0]["ctx"]["remedy"]


@pytest.mark.parametrize(
    ("provider", "words"), [("other", "OTHER is no Preset"), ("broken", "MISSING cannot be loaded")]
)
def test_a_package_without_a_preset_is_named(provider: str, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Connection.model_validate({"provider": provider})
