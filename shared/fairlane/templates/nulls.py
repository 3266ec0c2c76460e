"""A null that a template prints is a missing value: else a model would be asked about the text "None"."""

from __future__ import annotations

from typing import Any

from jinja2 import nodes, pass_context
from jinja2.visitor import NodeTransformer

from fairlane.templates.meter import MeteredContext, MissingVariableError

NEEDED = "fairlane needed"
"""The filter that `Printing` puts in; no template can name it, for a name has no space."""

_AS_TEXT = frozenset(
    (
        *("capitalize", "lower", "upper", "title", "trim", "truncate", "string", "replace", "indent", "e"),
        *("escape", "safe", "urlencode", "format", "join"),
    )
)
"""Filters whose result is a text even for null."""

_DEFAULTS = frozenset(("default", "d"))


class Printing(NodeTransformer):
    """Puts `NEEDED` around each value that becomes text: what is printed, joined by ``~`` or made text by a
    filter of it. Conditions and ``default(…, true)`` still see null.
    """

    def __init__(self, tree: nodes.Template) -> None:
        self._assigned = {name.name for name in tree.find_all(nodes.Name) if name.ctx == "store"}

    def visit_Output(self, node: nodes.Output) -> nodes.Node:  # noqa: N802
        """Need whatever is printed."""
        self.generic_visit(node)
        node.nodes = [
            each if isinstance(each, nodes.TemplateData) else self._text(each) for each in node.nodes
        ]
        return node

    def visit_Assign(self, node: nodes.Assign) -> nodes.Node:  # noqa: N802
        """Need what a filter makes text of; a null itself may be assigned and asked for."""
        self.generic_visit(node)
        if isinstance(node.node, nodes.Filter) and node.node.name in _AS_TEXT:
            node.node = self._text(node.node)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        """Need both sides of ``~``."""
        self.generic_visit(node)
        node.nodes = [self._text(each) for each in node.nodes]
        return node

    def _text(self, node: nodes.Expr) -> nodes.Expr:
        """An expression that becomes text: none of the values that it may have is null."""
        match node:
            case nodes.Const() | nodes.Concat():
                return node
            case nodes.Or():
                node.left, node.right = self._passing(node.left), self._text(node.right)
                return node
            case nodes.And():
                node.left, node.right = self._text(node.left), self._text(node.right)
                return node
            case nodes.CondExpr():
                node.expr1 = self._text(node.expr1)
                node.expr2 = None if node.expr2 is None else self._text(node.expr2)
                return node
            case nodes.Tuple():
                node.items = [self._text(each) for each in node.items]
                return node
            case nodes.Filter() if node.name in _AS_TEXT and node.node is not None:
                node.node = self._text(node.node)
                if node.name == "format":
                    node.args = [self._text(each) for each in node.args]
                return node
        name, kind = self._named(node)
        names: list[nodes.Expr] = [nodes.Const(name), nodes.Const(kind)]
        return nodes.Filter(self._part(node), NEEDED, names, [], None, None, lineno=node.lineno)

    def _part(self, node: nodes.Expr) -> nodes.Expr:
        """A part of such an expression, which itself may be null. What it makes text of may not."""
        match node:
            case nodes.Filter() if node.name in _AS_TEXT:
                return self._text(node)
            case nodes.Filter() if node.name in _DEFAULTS and node.node is not None:
                node.node = self._passing(node.node)
            case nodes.Filter() | nodes.Getitem() | nodes.Getattr() | nodes.Call() if node.node is not None:
                node.node = self._part(node.node)
            case nodes.Mod():
                node.left, node.right = self._part(node.left), self._text(node.right)
            case nodes.Or():
                node.left, node.right = self._passing(node.left), self._part(node.right)
            case nodes.BinExpr():
                node.left, node.right = self._part(node.left), self._part(node.right)
            case nodes.CondExpr():
                node.expr1 = self._part(node.expr1)
                node.expr2 = None if node.expr2 is None else self._part(node.expr2)
        return node

    def _passing(self, node: nodes.Expr) -> nodes.Expr:
        """What another value may replace: null stays null, whatever filters make text of it."""
        at: nodes.Expr | None = node
        while isinstance(at, nodes.Filter) and at.name in _AS_TEXT:
            at = at.node
        if at is node or not isinstance(at, nodes.Name | nodes.Getattr | nodes.Getitem):
            return self._part(node)
        null = nodes.Test(at, "none", [], [], None, None, lineno=node.lineno)
        return nodes.CondExpr(null, nodes.Const(None), node, lineno=node.lineno)

    def _named(self, node: nodes.Expr) -> tuple[str | None, str]:
        """The name that an expression reads, and what has it."""
        match node:
            case nodes.Name():
                return node.name, "a variable" if node.name in self._assigned else "the row"
            case nodes.Getattr():
                return node.attr, "an object"
            case nodes.Getitem(arg=nodes.Const(value=str(key))):
                return key, "an object"
            case nodes.Filter() if node.name in _DEFAULTS and node.node is not None:
                return self._named(node.node)
        return None, ""


@pass_context
def needed(_context: MeteredContext, value: Any, name: str | None, kind: str) -> Any:
    """``value``, unless it is null. Raises `MissingVariableError`, as for what is not there at all."""
    if value is not None:
        return value
    if name is None:
        raise ValueError("an expression that it prints is null")
    if kind == "a variable":
        raise ValueError(f"{name!r} is null, and it is printed")
    if kind == "the row":
        raise MissingVariableError(f"the row has no field {name!r}", name)
    raise MissingVariableError(f"there is no {name!r} in this dict", name)
