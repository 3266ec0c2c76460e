"""Templates of JSON documents and URL paths, in which values of a row cannot change the structure."""

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from jinja2 import TemplateSyntaxError, nodes
from jinja2.runtime import Undefined

from fairlane.core.errors import TemplateError
from fairlane.templates.meter import MeteredContext, MissingVariableError
from fairlane.templates.sandbox import ENVIRONMENT
from fairlane.templates.template import Template, compiled, referenced_variables, variables

MISSING: Final = object()
"""The result of an expression that uses a missing name or field."""

MOST_DEPTH = 50
_RESULT = "value"
_EXPRESSION = re.compile(r"(\{\{.*?\}\})", re.DOTALL)
_LITERAL = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@/?%-]*")
_DOTS = frozenset({".", ".."})


class Value:
    """A single ``{{ expression }}``, evaluated to a JSON value instead of text."""

    __slots__ = ("_body", "_field")

    def __init__(self, field: str, text: str) -> None:
        """Compile ``text``; errors call it ``field``. Raises `TemplateError`."""
        self._field = field
        inner = text.strip().removeprefix("{{").removesuffix("}}")
        if not is_expression(field, text):
            raise TemplateError(field, f"a single {{{{ expression }}}} is expected, not {text!r}")
        source = inner.removeprefix("-").removeprefix("+").removesuffix("-").removesuffix("+")
        self._body = compiled(field, f"{{% set {_RESULT} = {source} %}}")

    def find(self, names: Mapping[str, Any]) -> Any:
        """The value, or `MISSING` if the expression uses a missing name or field.

        Raises `TemplateError` if it fails, or if its value is not JSON.
        """
        context = MeteredContext(ENVIRONMENT, dict(names), None, {})
        try:
            for _ in self._body.root_render_func(context):
                pass
            found = context.vars[_RESULT]
        except MissingVariableError:
            return MISSING
        except Exception as error:  # an expression may raise anything at all
            raise TemplateError(self._field, str(error) or type(error).__name__) from error
        if isinstance(found, Undefined):
            return MISSING
        if not isinstance(found, str | int | float | bool | list | dict | tuple | None):
            raise TemplateError(self._field, f"its value is a {type(found).__name__}, which JSON has not")
        return found


class JsonTemplate:
    """JSON whose texts are templates. A text that is one expression becomes that expression's value. Entries
    with a missing value are left out.
    """

    __slots__ = ("_root",)

    def __init__(self, field: str, document: Any) -> None:
        """Compile all texts of ``document``; errors name ``field`` and the path of the text.

        Raises `TemplateError`.
        """
        self._root = _shape(field, document, 0)

    def render(self, names: Mapping[str, Any]) -> Any:
        """The document, or `MISSING`. Raises `TemplateError`."""
        return _filled(self._root, names, variables({}, **names))


class PathTemplate:
    """A URL's path, and its query, with ``{{ expressions }}`` whose values are percent-encoded.

    A value can neither add a segment to the path nor leave it.
    """

    __slots__ = ("_field", "_pieces")

    def __init__(self, field: str, text: str) -> None:
        """Compile ``text``; errors call it ``field``. Raises `TemplateError`."""
        self._field = field
        pieces = _EXPRESSION.split(text)
        for literal in pieces[::2]:
            if not _LITERAL.fullmatch(literal):
                raise TemplateError(field, f"{literal!r} cannot stand in a path; write it percent-encoded")
        if text and not text.startswith(("/", "?")):
            raise TemplateError(field, "it begins with /")
        _check_parts(field, text)
        self._pieces: list[str | Value] = [
            Value(field, piece) if place % 2 else piece for place, piece in enumerate(pieces)
        ]

    def render(self, names: Mapping[str, Any]) -> str:
        """The path for these names. Raises `TemplateError`, also for a missing, empty or dotted value."""
        path = "".join(
            piece if isinstance(piece, str) else self._encoded(piece.find(names)) for piece in self._pieces
        )
        _check_parts(self._field, path)
        return path

    def _encoded(self, value: Any) -> str:
        if value is MISSING or value is None or value == "":
            raise TemplateError(self._field, "a value that it needs is missing")
        if isinstance(value, list | dict | tuple):
            raise TemplateError(self._field, "a value of it is no text and no number")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        return quote(text, safe="", errors="replace")


def names_in(document: Any) -> frozenset[str]:
    """The names that the templates of a document use. They must compile."""
    if isinstance(document, str):
        return referenced_variables(document)
    parts = document.values() if isinstance(document, Mapping) else document
    return frozenset().union(*map(names_in, parts)) if isinstance(document, Mapping | list) else frozenset()


def is_expression(field: str, text: str) -> bool:
    """Whether ``text`` is exactly one ``{{ expression }}``. Raises `TemplateError`."""
    try:
        body = ENVIRONMENT.parse(text).body
    except TemplateSyntaxError as error:
        raise TemplateError(field, f"line {error.lineno}: {error.message}") from error
    match body:
        case [nodes.Output(nodes=[single])]:
            return not isinstance(single, nodes.TemplateData)
    return False


def _check_parts(field: str, path: str) -> None:
    if not _DOTS.isdisjoint(path.partition("?")[0].split("/")):
        raise TemplateError(field, "a part of the path is dots alone")


_Shape = Value | Template | dict[str, Any] | list[Any] | int | float | bool | None


def _shape(field: str, document: Any, depth: int) -> _Shape:
    if depth > MOST_DEPTH:
        raise TemplateError(field, f"it is more than {MOST_DEPTH} tables deep")
    if isinstance(document, Mapping):
        return {str(name): _shape(f"{field}.{name}", part, depth + 1) for name, part in document.items()}
    if isinstance(document, list):
        return [_shape(f"{field}[{place}]", part, depth + 1) for place, part in enumerate(document)]
    if isinstance(document, str):
        return Value(field, document) if is_expression(field, document) else Template(field, document)
    if document is None or isinstance(document, int | float):
        return document
    raise TemplateError(field, f"a {type(document).__name__} is nothing that JSON has")


def _filled(shape: _Shape, names: Mapping[str, Any], all_names: dict[str, Any]) -> Any:
    match shape:
        case dict():
            filled = {name: _filled(part, names, all_names) for name, part in shape.items()}
            return {name: value for name, value in filled.items() if value is not MISSING}
        case list():
            found = (_filled(part, names, all_names) for part in shape)
            return [value for value in found if value is not MISSING]
        case Value():
            return shape.find(names)
        case Template():
            return shape.render_variables(all_names)
    return shape
