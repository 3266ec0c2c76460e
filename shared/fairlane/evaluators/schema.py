"""Checks outputs against the part of JSON Schema that assertions may use.

A check costs at most the size of the schema times the size of the output (decision 0050).
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from fairlane.evaluators.patterns import PatternError, compile_pattern, search

_ANNOTATIONS = frozenset(
    ("$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated")
)

_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: _is_number(value),
    "integer": lambda value: _is_number(value) and (isinstance(value, int) or value.is_integer()),
}

_BOUNDS: Mapping[str, tuple[Callable[[Any], float | None], Callable[[float, float], bool]]] = {
    "minimum": (lambda value: _number(value), lambda value, bound: value >= bound),
    "maximum": (lambda value: _number(value), lambda value, bound: value <= bound),
    "exclusiveMinimum": (lambda value: _number(value), lambda value, bound: value > bound),
    "exclusiveMaximum": (lambda value: _number(value), lambda value, bound: value < bound),
    "minLength": (lambda value: _size(value, str), lambda size, bound: size >= bound),
    "maxLength": (lambda value: _size(value, str), lambda size, bound: size <= bound),
    "minItems": (lambda value: _size(value, list), lambda size, bound: size >= bound),
    "maxItems": (lambda value: _size(value, list), lambda size, bound: size <= bound),
    "minProperties": (lambda value: _size(value, dict), lambda size, bound: size >= bound),
    "maxProperties": (lambda value: _size(value, dict), lambda size, bound: size <= bound),
}

_HANDLED = frozenset(
    ("type", "enum", "const", "required", "properties", "items", "additionalProperties", "pattern")
)


def schema_problem(schema: object, where: str = "schema") -> str | None:
    """Why `conforms` cannot use ``schema``; ``None`` if it can."""
    if isinstance(schema, bool):
        return None
    if not isinstance(schema, Mapping):
        return f"{where} is no object"
    for keyword, rule in schema.items():
        if keyword in _ANNOTATIONS:
            continue
        if keyword not in _HANDLED and keyword not in _BOUNDS:
            return f"{where} has the keyword {keyword!r}, which is not supported"
        if problem := _rule_problem(keyword, rule, where):
            return problem
    return None


def conforms(value: object, schema: object) -> bool:
    """Whether ``schema``, which has no `schema_problem`, allows a JSON value. Raises `SearchError`."""
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, Mapping):
        return False
    return all(_holds(keyword, rule, value, schema) for keyword, rule in schema.items())


def equal(one: object, other: object) -> bool:
    """Whether two JSON values are equal: 1 equals 1.0, but not ``true``."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(equal(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    return one == other


def _holds(keyword: str, rule: Any, value: Any, schema: Mapping[str, Any]) -> bool:
    match keyword:
        case "type":
            return any(_TYPES[name](value) for name in ([rule] if isinstance(rule, str) else rule))
        case "enum":
            return any(equal(value, each) for each in rule)
        case "const":
            return equal(value, rule)
        case "required":
            return not isinstance(value, dict) or all(name in value for name in rule)
        case "properties":
            return not isinstance(value, dict) or all(
                conforms(value[name], each) for name, each in rule.items() if name in value
            )
        case "additionalProperties":
            known = schema.get("properties", {})
            return not isinstance(value, dict) or all(
                conforms(each, rule) for name, each in value.items() if name not in known
            )
        case "items":
            return not isinstance(value, list) or all(conforms(each, rule) for each in value)
        case "pattern":
            return not isinstance(value, str) or search(rule, value) is not None
        case _:
            if keyword not in _BOUNDS:
                return True
            measure, within = _BOUNDS[keyword]
            size = measure(value)
            return size is None or within(size, rule)


def _rule_problem(keyword: str, rule: Any, where: str) -> str | None:
    malformed = f"{where}.{keyword} is malformed"
    match keyword:
        case "type":
            names = [rule] if isinstance(rule, str) else rule
            good = isinstance(names, list) and all(isinstance(n, str) and n in _TYPES for n in names)
            return None if good else malformed
        case "enum":
            return None if isinstance(rule, list) else malformed
        case "const":
            return None
        case "required":
            good = isinstance(rule, list) and all(isinstance(name, str) for name in rule)
            return None if good else malformed
        case "properties":
            if not isinstance(rule, Mapping):
                return malformed
            found = (schema_problem(each, f"{where}.properties.{name}") for name, each in rule.items())
            return next(filter(None, found), None)
        case "additionalProperties" | "items":
            return schema_problem(rule, f"{where}.{keyword}")
        case "pattern":
            return None if isinstance(rule, str) and _compiles(rule) else malformed
        case _:
            return None if _is_number(rule) else malformed


def _compiles(pattern: str) -> bool:
    try:
        compile_pattern(pattern)
    except PatternError:
        return False
    return True


def _is_number(value: object) -> bool:
    return type(value) is int or (isinstance(value, float) and math.isfinite(value))


def _number(value: Any) -> float | None:
    return value if _is_number(value) else None


def _size(value: Any, kind: type[Any]) -> int | None:
    return len(value) if isinstance(value, kind) else None


def with_lower_case_types(schema: Any) -> Any:
    """A schema with its types in lower case: Gemini's are in capitals."""
    if isinstance(schema, Mapping):
        return {
            name: each.lower() if name == "type" and isinstance(each, str) else with_lower_case_types(each)
            for name, each in schema.items()
        }
    return [with_lower_case_types(each) for each in schema] if isinstance(schema, list) else schema
