"""No number of a spec is so large that a scheduler's tick or a script could not compute with it."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from pydantic import ValidationError

from fairlane.client.submitting.submission import build_spec
from fairlane.core.errors import ConfigurationError, SubmissionError
from fairlane.model.choices import LATEST_MS, MOST_NUMBER, MOST_SECONDS
from fairlane.model.decision import RetryPolicy
from fairlane.model.run import Bounds, RunSpec
from tests.support.hostile_specs import EXTREMES, WHOLE, Path, numbers, with_number

BOUNDS = ("max_concurrent", "ahead", "budget_tokens", "budget_usd")
RULES = (*BOUNDS, "max_rate_limits")


def schema_parts() -> list[dict[str, Any]]:
    """The schema of a spec and of its parts."""
    schema = RunSpec.model_json_schema()
    return [schema, *schema["$defs"].values()]


def schema_numbers() -> set[str]:
    """Names of the fields that have a number, by the schema of a spec."""
    found = set()
    for each in schema_parts():
        for name, field in each.get("properties", {}).items():
            text = json.dumps(field)
            if '"type": "integer"' in text or '"type": "number"' in text:
                found.add(name)
    return found


def test_the_example_has_every_number_of_a_spec() -> None:
    assert RunSpec.read(json.dumps(WHOLE)).rows == 1
    here = {str(part) for path in numbers(WHOLE) for part in path}
    assert schema_numbers() - here == {"version"}


@pytest.mark.parametrize("path", [*numbers(WHOLE)], ids=lambda path: ".".join(map(str, path)))
@pytest.mark.parametrize("number", EXTREMES)
def test_no_number_of_a_spec_is_too_large(path: Path, number: str) -> None:
    with pytest.raises(ValidationError):
        RunSpec.read(with_number(path, number))


@pytest.mark.parametrize("name", [*RULES])
@pytest.mark.parametrize("number", [1e308, 2**63, math.nan, math.inf])
def test_a_part_made_alone_has_a_most(name: str, number: float) -> None:
    with pytest.raises((ValidationError, ConfigurationError), match=name):
        RetryPolicy(**{name: number}) if name == "max_rate_limits" else Bounds(**{name: number})


def test_each_number_of_a_spec_has_a_least_and_a_most() -> None:
    unbounded = set()
    for cls in schema_parts():
        for name, field in cls.get("properties", {}).items():
            for each in field.get("anyOf", [field]):
                if each.get("type") in ("integer", "number"):
                    low, high = {"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}
                    if not (low & each.keys() and high & each.keys()):
                        unbounded.add(name)
    assert not unbounded


@pytest.mark.parametrize("name", [*RULES])
def test_a_clients_number_is_refused_with_a_remedy(name: str) -> None:
    most = 2**63
    with pytest.raises((SubmissionError, ConfigurationError)) as refused:
        build_spec(
            "r1", "t", 1, prompt="x", model="sim:m", **{name: most}
        ) if name in BOUNDS else RetryPolicy(max_rate_limits=most)
    assert name in str(refused.value)
    assert str(most) in str(refused.value)
    assert "Give" in str(refused.value) or "Left out" in str(refused.value)


def test_a_rate_that_never_starts_a_second_call_is_rejected() -> None:
    for role in ("task_rate", "eval_rate"):
        with pytest.raises(ValidationError, match="a rate is 0, or"):
            RunSpec.read(with_number(("bounds", role), "1e-320"))
        assert RunSpec.read(with_number(("bounds", role), "0")).rows == 1


def test_the_largest_numbers_are_taken() -> None:
    bounds = ("max_duration", "max_outage")
    for path, most in (
        *((("bounds", name), MOST_SECONDS) for name in bounds),
        (("bounds", "start_ms"), LATEST_MS),
        (("bounds", "budget_tokens"), int(MOST_NUMBER)),
    ):
        assert RunSpec.read(with_number(path, str(most))).rows == 1


@pytest.mark.parametrize(
    ("name", "number"), [("max_duration", 1e308), ("ahead", 10**400), ("task_rate", 1e-320)]
)
def test_a_client_names_the_number(name: str, number: float) -> None:
    with pytest.raises(SubmissionError) as refused:
        build_spec("r1", "t", 1, prompt="x", model="sim:m", **{name: number})
    assert name in str(refused.value)
    assert len(str(refused.value)) < 1000
