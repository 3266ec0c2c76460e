"""No number of a spec is so large that a scheduler's tick or a script could not compute with it."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from fairlane.client.submitting.submission import build_spec
from fairlane.core.errors import SubmissionError
from fairlane.model.choices import LATEST_MS, MOST_NUMBER, MOST_SECONDS
from fairlane.model.run import RunSpec
from tests.support.hostile_specs import EXTREMES, WHOLE, Path, numbers, with_number


def schema_numbers() -> set[str]:
    """Names of the fields that have a number, by the schema of a spec."""
    schema, found = RunSpec.model_json_schema(), set()
    for each in (schema, *schema["$defs"].values()):
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
