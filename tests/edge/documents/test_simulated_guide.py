"""The guide to the simulated provider says what its configuration says."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from pydantic.fields import FieldInfo

from fairlane.config.connections.presets import PROTOCOLS
from fairlane.local.plan import address_of
from fairlane.testing import Faults, SimulatedModel, SimulatorConfig
from tests.support.documents import blocks

GUIDE = Path(__file__).parents[3] / "docs" / "simulated-provider.md"
FIELDS = [*SimulatedModel.model_fields.items(), *Faults.model_fields.items()]


@pytest.mark.parametrize(("name", "field"), [each for each in FIELDS if each[0] != "faults"], ids=str)
def test_every_field_is_reported_in_its_own_words(name: str, field: FieldInfo) -> None:
    described = " ".join((field.description or "").split()).replace("|", r"\|")
    assert f"| `{name}` | {described} |" in GUIDE.read_text(encoding="utf-8").splitlines()


def test_its_example_is_a_configuration() -> None:
    (example,) = blocks(GUIDE, "toml simulator")
    config = SimulatorConfig.model_validate(tomllib.loads(example.text))
    assert config.models["my-deployment"].charge == "reserved"


@pytest.mark.parametrize("protocol", sorted(set(PROTOCOLS) - {"http"}))
def test_every_protocol_has_its_address(protocol: str) -> None:
    address = address_of("http://127.0.0.1:8100/v1", protocol)
    rows = [row for row in GUIDE.read_text(encoding="utf-8").splitlines() if f"`{protocol}`" in row]
    assert any(f"| `{address}` |" in row for row in rows)
