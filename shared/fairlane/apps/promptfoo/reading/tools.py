"""Tools as providers describe them, in OpenAI's form, which connections take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def tools_of(value: Any) -> list[dict[str, Any]] | None:
    """The tools of a list, functions in OpenAI's form. ``None`` if it is no list of tools.

    A tool of a provider's own, such as a search, stays as it is: a protocol that lacks it refuses it.
    """
    if not isinstance(value, list):
        return None
    found: list[dict[str, Any]] = []
    for each in value:
        if not isinstance(each, Mapping):
            return None
        declared = each.get("functionDeclarations", each.get("function_declarations"))
        if isinstance(declared, list):
            found.extend(_declared(one) or dict(one) for one in declared)
        else:
            found.append(_tool(each) or dict(each))
    return found


def _tool(tool: Mapping[str, Any]) -> dict[str, Any] | None:
    match tool:
        case {"type": "function", "function": dict(function)} if function.get("name"):
            return {"type": "function", "function": dict(function)}
        case {"function": dict(function)} if function.get("name"):
            return {"type": "function", "function": dict(function)}
        case {"toolSpec": {"name": str(name), **rest}}:
            schema = rest.get("inputSchema")
            inner = schema.get("json", schema) if isinstance(schema, Mapping) else None
            return _function(name, rest.get("description"), inner)
        case {"name": str(name), "input_schema": dict(schema), **rest}:
            return _function(name, rest.get("description"), schema)
        case {"type": "custom" | "function", "name": str(name), **rest}:
            return _function(name, rest.get("description"), rest.get("parameters", rest.get("input_schema")))
    return None if "type" in tool else _declared(tool)


def _declared(tool: Any) -> dict[str, Any] | None:
    if not isinstance(tool, Mapping) or not isinstance(name := tool.get("name"), str):
        return None
    return _function(name, tool.get("description"), tool.get("parameters", tool.get("parameter_definitions")))


def _function(name: str, description: Any, schema: Any) -> dict[str, Any]:
    function: dict[str, Any] = {"name": name}
    if isinstance(description, str):
        function["description"] = description
    if isinstance(schema, Mapping):
        function["parameters"] = with_lower_case_types(schema)
    return {"type": "function", "function": function}


def with_lower_case_types(schema: Any) -> Any:
    """A schema with its types in lower case: Gemini's are in capitals."""
    if isinstance(schema, Mapping):
        return {
            name: each.lower() if name == "type" and isinstance(each, str) else with_lower_case_types(each)
            for name, each in schema.items()
        }
    return [with_lower_case_types(each) for each in schema] if isinstance(schema, list) else schema
