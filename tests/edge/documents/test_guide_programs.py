"""Calls in the guides' Python exist and take the arguments shown; tables of providers are complete."""

from __future__ import annotations

import ast
import inspect
import typing
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import fairlane
import fairlane.testing
from fairlane import CallHandle, CallMap, Client, Run
from fairlane.client.submitting.row_writer import RowWriter
from fairlane.config.connections.connection import Connection
from fairlane.config.connections.presets import PROTOCOLS
from fairlane_workers.providers.limits.table import DIALECTS as LIMIT_DIALECTS
from tests.support.documents import GUIDES, ROOT, Block, blocks, coded, table

PROVIDERS = ROOT / "docs" / "providers.md"
CALLED = {
    **dict.fromkeys(["client", "search", "batch"], Client),
    **dict.fromkeys(["run", "experiment", "judged", "sooner", "later"], Run),
    "handle": CallHandle,
    "calls": CallMap,
    "rows": RowWriter,
}
"""The names of the guides' objects."""

PUBLIC = {name: getattr(module, name) for module in (fairlane, fairlane.testing) for name in module.__all__}
PROGRAMS = [block for path in GUIDES for block in blocks(path, "python")]


@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_a_call_is_one_that_can_be_made(block: Block) -> None:
    for call in ast.walk(ast.parse(block.text)):
        if isinstance(call, ast.Call) and (found := _called(call)) is not None:
            name, function = found
            assert function is not None, f"{block}: there is no {name}"
            given = {keyword.arg for keyword in call.keywords if keyword.arg}
            assert given <= set(_keywords(function)), f"{block}: {name}"


def test_the_programs_call_the_client_often_enough_for_this_to_mean_something() -> None:
    calls = [
        node for block in PROGRAMS for node in ast.walk(ast.parse(block.text)) if isinstance(node, ast.Call)
    ]
    assert len([call for call in calls if _called(call)]) > 40


def test_every_dialect_of_limit_headers_is_described() -> None:
    described = [
        code for row in table(PROVIDERS, "`limit_headers`", "read") for code in coded(row["`limit_headers`"])
    ]
    (choices, _) = typing.get_args(Connection.model_fields["limit_headers"].annotation)
    assert sorted(described) == sorted(LIMIT_DIALECTS) == sorted(typing.get_args(choices))


def test_every_protocol_is_described() -> None:
    rows = table(PROVIDERS, "`protocol`", "a call is")
    assert [coded(row["`protocol`"])[0] for row in rows] == list(PROTOCOLS)


def _called(call: ast.Call) -> tuple[str, Callable[..., Any] | None] | None:
    """Name and function of a call of Fairlane's; the function is ``None`` if it does not exist."""
    match call.func:
        case ast.Name(id=name) if name in PUBLIC:
            return name, PUBLIC[name]
        case ast.Attribute(value=ast.Name(id=thing), attr=name) if thing in CALLED:
            return f"{thing}.{name}", getattr(CALLED[thing], name, None)
    return None


def _keywords(function: Callable[..., Any]) -> Iterator[str]:
    """Names that a function takes by keyword, those of its ``**options`` included."""
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is not parameter.VAR_KEYWORD:
            yield parameter.name
            continue
        target = function.__init__ if inspect.isclass(function) else function
        (options,) = typing.get_args(typing.get_type_hints(target)[parameter.name])
        yield from typing.get_type_hints(options)
