"""Finds which attributes of a list's entries a template reads, so that the others need not be stored."""

from collections.abc import Iterator
from enum import Enum, auto

from jinja2 import TemplateError as JinjaError
from jinja2 import nodes

from fairlane.templates.sandbox import ENVIRONMENT

_LISTS = frozenset(("reverse", "list"))
_ENTRIES = frozenset(("first", "last"))
_COUNTS = frozenset(("length", "count"))
_TESTS = frozenset(("defined", "undefined", "none"))
"""Tests that read no attribute; equality reads all of them."""

_NEIGHBOURS = frozenset(("previtem", "nextitem"))
"""Attributes of ``loop`` that are entries of the list."""

_LOADERS = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)


class _Kind(Enum):
    LIST = auto()
    ENTRY = auto()


class _Unknown(Exception):
    """The template uses the list, or an entry, in a way that may read anything of it."""


def attributes_read(text: str, name: str) -> frozenset[str] | None:
    """The attributes that ``text`` reads of the entries of its variable ``name``, a list, in any branch.

    ``None`` if unknown: it prints a whole entry, or passes it to a filter or a macro.
    """
    try:
        tree = ENVIRONMENT.parse(text)
        return _Reading(tree, name).attributes()
    except (_Unknown, JinjaError, ValueError, RecursionError):
        return None


class _Reading:
    """Analyses one template's tree. It ignores scopes of names, which can only find more attributes."""

    def __init__(self, tree: nodes.Template, name: str) -> None:
        self._tree, self._name = tree, name
        self._kinds: dict[str, _Kind] = {name: _Kind.LIST}

    def attributes(self) -> frozenset[str]:
        """The attributes that the template reads. Raises `_Unknown`."""
        while self._learns_names():
            pass
        found = set[str]()
        for parent, node in _pairs(self._tree):
            self._check_other_ways(parent, node)
            kind = self._kind(node)
            if kind is not None and (attribute := self._used(kind, parent, node)) is not None:
                found.add(attribute)
        return frozenset(found)

    def _learns_names(self) -> bool:
        """Add names of loops and assignments that stand for the list or an entry; false if none is new."""
        known = len(self._kinds)
        for loop in self._tree.find_all(nodes.For):
            if self._kind(loop.iter) is _Kind.LIST:
                self._learn(loop.target, _Kind.ENTRY)
        for assigned in self._tree.find_all(nodes.Assign):
            if (kind := self._kind(assigned.node)) is not None:
                self._learn(assigned.target, kind)
        return len(self._kinds) > known

    def _learn(self, target: nodes.Node, kind: _Kind) -> None:
        if not isinstance(target, nodes.Name) or self._kinds.setdefault(target.name, kind) is not kind:
            raise _Unknown

    def _kind(self, node: nodes.Node) -> _Kind | None:
        """What an expression stands for; ``None`` for anything else, such as an entry's attribute."""
        match node:
            case nodes.Name(name=name, ctx="load"):
                return self._kinds.get(name)
            case nodes.Getattr(node=nodes.Name(name="row"), attr=self._name):
                return _Kind.LIST
            case nodes.Getitem(node=nodes.Name(name="row"), arg=nodes.Const(value=self._name)):
                return _Kind.LIST
            case nodes.Getitem(node=inner, arg=arg) if self._kind(inner) is _Kind.LIST:
                return _Kind.LIST if isinstance(arg, nodes.Slice) else _Kind.ENTRY
            case nodes.Filter(node=nodes.Node() as inner, name=name) if self._kind(inner) is _Kind.LIST:
                return _Kind.LIST if name in _LISTS else _Kind.ENTRY if name in _ENTRIES else None
        return None

    def _used(self, kind: _Kind, parent: nodes.Node, node: nodes.Node) -> str | None:
        """The attribute that this use reads; ``None`` if it reads none. Raises `_Unknown`."""
        match parent:
            case nodes.If(test=test) | nodes.CondExpr(test=test) if test is node:
                return None
            case nodes.Test(name=name) if name in _TESTS:
                return None
            case nodes.Not() | nodes.Assign():
                return None
            case nodes.Getattr(attr=attribute) if kind is _Kind.ENTRY:
                return attribute
            case nodes.Getitem(arg=nodes.Const(value=str(attribute))) if kind is _Kind.ENTRY and (
                parent.node is node
            ):
                return attribute
        if kind is _Kind.LIST and self._passes_on(parent, node):
            return None
        raise _Unknown

    def _passes_on(self, parent: nodes.Node, node: nodes.Node) -> bool:
        """Whether a use of the list yields its entries, a part of it, or its length."""
        match parent:
            case nodes.For(iter=looped):
                return looped is node
            case nodes.Getitem(node=inner):
                return inner is node
            case nodes.Filter(node=inner, name=name):
                return inner is node and name in _LISTS | _ENTRIES | _COUNTS
        return False

    def _check_other_ways(self, parent: nodes.Node, node: nodes.Node) -> None:
        """Raise `_Unknown` for a node that may reach the list or an entry without its name."""
        if isinstance(node, _LOADERS):
            raise _Unknown
        if not isinstance(node, nodes.Name) or node.ctx != "load" or node.name not in ("row", "loop"):
            return
        match parent:
            case nodes.Getattr(attr=str(part)):
                pass
            case nodes.Getitem(node=inner, arg=nodes.Const(value=str(part))) if inner is node:
                pass
            case _:
                raise _Unknown
        if part in _NEIGHBOURS if node.name == "loop" else hasattr(dict, part):
            raise _Unknown


def _pairs(tree: nodes.Node) -> Iterator[tuple[nodes.Node, nodes.Node]]:
    """Each node below this one, with its parent."""
    left = [tree]
    while left:
        parent = left.pop()
        for child in parent.iter_child_nodes():
            yield parent, child
            left.append(child)
