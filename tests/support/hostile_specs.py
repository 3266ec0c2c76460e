"""Specs as no client writes them: a spec with every number that one may have, and one of them changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

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


def with_number(path: Path, number: str, **fields: Any) -> str:
    """The text of that spec with ``fields``, and with this number in one place."""
    document = json.loads(json.dumps({**WHOLE, **fields}))
    part = document
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = "<here>"
    return json.dumps(document).replace('"<here>"', number)
