"""The template language: Jinja2 that reads one row, loads nothing and does bounded work."""

from collections.abc import Callable
from functools import partial, wraps
from operator import floordiv, sub, truediv
from typing import Any

from jinja2 import TemplateSyntaxError, nodes, pass_context
from jinja2.filters import FILTERS
from jinja2.runtime import LoopContext, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.tests import TESTS
from jinja2.visitor import NodeTransformer

from fairlane.templates import operations, vocabulary
from fairlane.templates.meter import MeteredContext, NullError, RowUndefined, printed

_WEIGHED = "fairlane weighed"
_JOINED = "fairlane joined"
_ROUNDS = "fairlane rounds"
"""Filters that `Metering` inserts; no template can name them, since a name has no space."""

_MAX_TOKENS = 40_000
_MAX_NODES = 10_000
"""Most tokens and nodes of a template. Compiling one of that size takes a few tenths of a second."""

_STATEMENTS = (
    nodes.Template,
    nodes.Output,
    nodes.TemplateData,
    nodes.If,
    nodes.For,
    nodes.Assign,
    nodes.With,
)
_REMEDY = "templates have expressions, filters, if, for, set, with and raw"


class Metering(NodeTransformer):
    """Rejects statements that are not in `_STATEMENTS`, and meters values that could grow large."""

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        """Reject a statement that is not available. Raises ``TemplateSyntaxError``."""
        if isinstance(node, nodes.Stmt) and not isinstance(node, _STATEMENTS):
            name = type(node).__name__.lower()
            raise TemplateSyntaxError(f"a {name} is not available: {_REMEDY}", node.lineno or 1)
        return super().visit(node, *args, **kwargs)

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        """Charge each pass of a loop for the nodes in its body."""
        if node.recursive:
            raise TemplateSyntaxError(f"a recursive loop is not available: {_REMEDY}", node.lineno)
        cost = 1 + sum(1 for _ in node.find_all(nodes.Node))
        self.generic_visit(node)
        node.iter = _filtered(node.iter, _ROUNDS, nodes.Const(cost, lineno=node.lineno))
        return node

    def visit_Assign(self, node: nodes.Assign) -> nodes.Node:  # noqa: N802
        """Weigh an assigned value."""
        self.generic_visit(node)
        node.node = _filtered(node.node, _WEIGHED)
        return node

    def visit_With(self, node: nodes.With) -> nodes.Node:  # noqa: N802
        """Weigh the values of a ``with``."""
        self.generic_visit(node)
        node.values = [_filtered(value, _WEIGHED) for value in node.values]
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        """Weigh both sides of a comparison, which reads all of them."""
        self.generic_visit(node)
        node.expr = _filtered(node.expr, _WEIGHED)
        for operand in node.ops:
            operand.expr = _filtered(operand.expr, _WEIGHED)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        """Weigh the parts of a concatenation, and its result."""
        self.generic_visit(node)
        node.nodes = [_filtered(part, _JOINED) for part in node.nodes]
        return _filtered(node, _WEIGHED)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        """Weigh a slice, which is a copy."""
        self.generic_visit(node)
        return _filtered(node, _WEIGHED) if isinstance(node.arg, nodes.Slice) else node

    def visit_NSRef(self, node: nodes.NSRef) -> nodes.Node:  # noqa: N802
        """Reject namespaces: their attributes would escape metering."""
        raise TemplateSyntaxError(f"a namespace is not available: {_REMEDY}", node.lineno)


def _filtered(node: Any, name: str, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno)


_DIVIDING = {"-": sub, "/": truediv, "//": floordiv}


class RowEnvironment(ImmutableSandboxedEnvironment):
    """Jinja2 over one row of JSON: its fields, the methods of `vocabulary.METHODS`, and metered filters."""

    context_class = MeteredContext
    intercepted_binops = frozenset({"+", "-", "*", "**", "/", "//", "%"})

    def __init__(self) -> None:
        # A prompt is text for a model, not HTML, so escaping would change the prompt and protect nobody.
        # Constant folding is off, since it would evaluate constants without metering.
        super().__init__(
            autoescape=False,
            undefined=RowUndefined,
            keep_trailing_newline=True,
            optimized=False,
            finalize=_shown,
        )
        self.globals.clear()
        self.filters.clear()
        known = {name: FILTERS[name] for name in vocabulary.JINJA_FILTERS}
        known |= {name: pass_context(own) for name, own in vocabulary.OWN_FILTERS.items()}
        for name, function in known.items():
            self.filters[name] = _metered(function, makes_text=name in vocabulary.TEXT_FILTERS)
        self.filters.update({_WEIGHED: _weighed, _JOINED: _joined, _ROUNDS: _rounds})
        self.tests.clear()
        self.tests.update({name: _metered(TESTS[name]) for name in vocabulary.JINJA_TESTS})

    def parse_metered(self, text: str) -> nodes.Template:
        """The syntax tree of ``text``, checked and metered. Raises ``TemplateSyntaxError``."""
        for count, _ in enumerate(self.lex(text)):
            if count > _MAX_TOKENS:
                raise TemplateSyntaxError(f"a template has at most {_MAX_TOKENS:,} words and signs", 1)
        tree = self.parse(text)
        if sum(1 for _ in tree.find_all(nodes.Node)) > _MAX_NODES:
            raise TemplateSyntaxError(f"a template has at most {_MAX_NODES:,} parts", 1)
        for kind, known in ((nodes.Filter, self.filters), (nodes.Test, self.tests)):
            for node in tree.find_all(kind):
                if node.name not in known:
                    listed = ", ".join(sorted(name for name in known if name.isidentifier()))
                    raise TemplateSyntaxError(
                        f"there is no {kind.__name__.lower()} {node.name!r}; there are: {listed}", node.lineno
                    )
        metered = Metering().visit(tree)
        if not isinstance(metered, nodes.Template):
            raise TypeError(f"a template became a {type(metered).__name__}")
        return metered

    def getitem(self, obj: Any, argument: Any) -> Any:
        """``obj[argument]``, never an attribute."""
        try:
            return obj[argument]
        except (TypeError, LookupError):
            return self.undefined(obj=obj, name=argument)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Prefers a field to a method: ``user.items`` is the row's field ``items`` if it has one."""
        if isinstance(obj, dict) and attribute in obj:
            return obj[attribute]
        if isinstance(obj, Undefined):
            return obj._fail_with_undefined_error()
        if isinstance(obj, LoopContext) and attribute in vocabulary.LOOP_ATTRIBUTES:
            return getattr(obj, attribute)
        method = vocabulary.METHODS.get(type(obj), {}).get(attribute)
        return self.undefined(obj=obj, name=attribute) if method is None else partial(method, obj)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Call a method, and charge for its arguments and its result."""
        if isinstance(__obj, partial):
            _weigh_all(__context, __obj.args)
        _weigh_all(__context, args)
        result = super().call(__context, __obj, *args, **kwargs)
        __context.weigh(result)
        return result

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """An operator within the bounds of `operations`."""
        match operator:
            case "+":
                result = operations.add(context, left, right)
            case "*":
                return operations.multiply(context, left, right)
            case "**":
                return operations.power(left, right)
            case "-" | "/" | "//":
                result = operations.arithmetic(_DIVIDING[operator], context, left, right)
            case _:
                result = operations.modulo(context, left, right)
        context.weigh(result)
        return result


def _weigh_all(context: MeteredContext, values: tuple[Any, ...]) -> None:
    for value in values:
        context.weigh(value)


@pass_context
def _shown(context: MeteredContext, value: object) -> object:
    """What ``{{ … }}`` prints; rejects null, and values whose text would be an address in memory."""
    if isinstance(value, str):
        return value
    if value is None:
        raise NullError
    if isinstance(value, (list, dict, tuple, bool)):
        context.weigh(value)
        return printed(value)
    if not isinstance(value, (int, float, Undefined)):
        if callable(value):
            raise TypeError("a method is printed without being called; add ()")
        raise TypeError("a sequence is printed without |list or |join")
    return value


@pass_context
def _weighed(context: MeteredContext, value: object) -> object:
    context.weigh(value)
    return value


@pass_context
def _joined(context: MeteredContext, value: object) -> object:
    """A side of ``~``, which becomes text."""
    if value is None:
        raise NullError
    context.weigh(value)
    return printed(value)


@pass_context
def _rounds(context: MeteredContext, values: Any, cost: int) -> Any:
    """The values of a loop; charges ``cost`` for each pass."""
    if isinstance(values, Undefined):
        return values
    if not hasattr(values, "__len__"):
        values = list(values)
    context.weigh(values)
    context.charge(cost * len(values))
    return values


def _metered(function: Any, *, makes_text: bool = False) -> Callable[..., Any]:
    """Make ``function``, a filter or test, charge the rendering for its arguments and its result.
    ``makes_text``: it converts its first argument to text, except null, which later tests can still see.
    """
    passed = getattr(getattr(function, "jinja_pass_arg", None), "name", None)

    @pass_context
    @wraps(function, updated=())
    def metered(context: MeteredContext, *args: Any, **kwargs: Any) -> Any:
        if makes_text and args[0] is None:
            return None
        _weigh_all(context, args)
        _weigh_all(context, tuple(kwargs.values()))
        if makes_text:
            args = (printed(args[0]), *args[1:])
        match passed:
            case "context":
                result = function(context, *args, **kwargs)
            case "eval_context":
                result = function(context.eval_ctx, *args, **kwargs)
            case "environment":
                result = function(context.environment, *args, **kwargs)
            case _:
                result = function(*args, **kwargs)
        context.weigh(result)
        return result

    return metered


ENVIRONMENT = RowEnvironment()
"""The only environment of a process; it keeps no state of templates."""
