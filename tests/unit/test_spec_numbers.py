"""No number of a spec is so large that a scheduler's tick or a script could not compute with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from fairlane.client.submission import build_spec
from fairlane.core.errors import SubmissionError
from fairlane.model.run import LATEST_MS, MOST_NUMBER, MOST_SECONDS, RunSpec

WHOLE: dict[str, Any] = {
    "run": "r1",
    "team": "flood",
    "name": "n",
    "prompts": [[{"role": "user", "content": "{{ q }}"}]],
    "models": ["sim:fast"],
    "params": {"max_tokens": 5},
    "repetitions": 1,
    "evaluators": [
        {
            "kind": "llm_judge",
            "name": "j",
            "model": "sim:m",
            "template": "x",
            "choices": {"yes": 1.0, "no": 0.0},
        },
        {
            "kind": "agent",
            "name": "a",
            "model": "sim:m",
            "template": "x",
            "criteria": [{"id": "c", "description": "d", "minimum": 1, "maximum": 5}],
        },
        {"kind": "numeric_match", "name": "n", "expected": "e", "tolerance": 0.1},
        {"kind": "similarity", "name": "s", "model": "sim:m", "expected": "e", "threshold": 0.5},
    ],
    "priority": 1,
    "timeout": 60.0,
    "retry": {"max_attempts": 3, "initial_delay": 1.0, "max_delay": 60.0, "max_rate_limits": 1000},
    "sessions": 1,
    "bounds": {
        "max_concurrent": 5,
        "ahead": 5,
        "task_rate": 1.0,
        "eval_rate": 1.0,
        "delay": 1.0,
        "max_duration": 10.0,
        "max_outage": 10.0,
        "budget_tokens": 10,
        "budget_usd": 10.0,
        "start_ms": 1,
    },
    "cache": {"mode": "read", "ttl": 10.0},
    "continues": {
        "run": "r0",
        "prompts": [0],
        "models": [0],
        "steps": [0],
        "repetitions": 1,
        "old_prompts": 1,
        "old_models": 1,
        "old_steps": 1,
    },
    "rows": 1,
    "page_rows": 10,
    "submitted_ms": 1,
}
"""A spec with every number that one may have."""

EXTREMES = ["9" * 400, "-" + "9" * 400, "1e308", "-1e308", "Infinity", "-Infinity", "NaN", "1e16"]

Path = tuple[str | int, ...]


def numbers(value: Any, path: Path = ()) -> Iterator[Path]:
    """Places of numbers in a document; parameters are the provider's."""
    if path == ("params",):
        return
    if isinstance(value, dict):
        for name, part in value.items():
            yield from numbers(part, (*path, name))
    elif isinstance(value, list):
        for place, part in enumerate(value):
            yield from numbers(part, (*path, place))
    elif isinstance(value, int | float):
        yield path


def with_number(path: Path, number: str) -> str:
    document = json.loads(json.dumps(WHOLE))
    part = document
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = "<here>"
    return json.dumps(document).replace('"<here>"', number)


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
        build_spec(run="r1", team="t", submitted_ms=1, prompt="x", model="sim:m", **{name: number})
    assert name in str(refused.value)
    assert len(str(refused.value)) < 1000
