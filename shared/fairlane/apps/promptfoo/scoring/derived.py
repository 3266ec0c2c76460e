"""Metrics that are computed from named ones by a formula."""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from fairlane.apps.promptfoo.reading.places import Place

MOST_CHARS = 1000
"""Characters of a formula."""

COUNT = "__count"
"""The name of the number of outputs in a formula."""

_TWO: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: lambda value, by: value % by if by else value,
    ast.Pow: math.pow,
}
_ONE: Mapping[type[ast.unaryop], Callable[[float], float]] = {ast.USub: operator.neg, ast.UAdd: operator.pos}


def _rounded(value: float, digits: float = 0) -> float:
    """The nearest number of so many decimals; of two, the one away from 0, as mathjs has it."""
    step = Decimal(1).scaleb(-int(digits))
    return value if abs(value) >= _WHOLE_FROM else float(Decimal(repr(value)).quantize(step, ROUND_HALF_UP))


_WHOLE_FROM = 2.0**53  # larger floats have no decimals
_FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "abs": math.fabs,
    "ceil": math.ceil,
    "exp": math.exp,
    "floor": math.floor,
    "log": math.log,
    "max": lambda *values: max(values),
    "min": lambda *values: min(values),
    "pow": math.pow,
    "round": _rounded,
    "sqrt": math.sqrt,
}


_ARGUMENTS = {"log": (1, 2), "max": (1, MOST_CHARS), "min": (1, MOST_CHARS), "pow": (2, 2), "round": (1, 2)}
"""The least and the most arguments of functions that take another number than one."""


@dataclass(frozen=True, slots=True)
class Derived:
    """A metric and its formula over named metrics."""

    name: str
    formula: str

    def value(self, metrics: Mapping[str, float]) -> float | None:
        """The metric's value; ``None`` if a metric is missing, or a division is by nothing."""
        try:
            found = _value(_parsed(self.formula).body, metrics)
        except (KeyError, ArithmeticError, ValueError, TypeError):
            return None
        return found if math.isfinite(found) else None


def read_derived(raw: Any, place: Place) -> tuple[Derived, ...]:
    """The metrics of a configuration's ``derivedMetrics``."""
    found: list[Derived] = []
    for number, each in enumerate(raw if isinstance(raw, list) else []):
        where = place / number
        name, formula = (each.get("name"), each.get("value")) if isinstance(each, Mapping) else (None, None)
        if not isinstance(name, str) or not isinstance(formula, str):
            where.refuse("a derived metric has a name and a formula")
            continue
        try:
            _check(_parsed(formula).body)
        except (SyntaxError, ValueError, RecursionError):
            (where / "value").refuse(
                "a formula has metrics, numbers, + - * / % ^ and functions like min and sqrt"
            )
            continue
        found.append(Derived(name, formula))
    if raw is not None and not isinstance(raw, list):
        place.refuse("derived metrics are a list")
    return tuple(found)


def _parsed(formula: str) -> ast.Expression:
    if len(formula) > MOST_CHARS:
        raise ValueError
    return ast.parse(formula.strip().replace("^", "**"), mode="eval")


def _check(node: ast.expr) -> None:
    match node:
        case ast.Constant(value=int() | float()) | ast.Name():
            return
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _TWO:
            _check(left)
            _check(right)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _ONE:
            _check(operand)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            least, most = _ARGUMENTS.get(name, (1, 1))
            if not least <= len(args) <= most:
                raise ValueError
            for each in args:
                _check(each)
        case _:
            raise ValueError


def _value(node: ast.expr, metrics: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name):
            return metrics[name]
        case ast.BinOp(left=left, op=op, right=right):
            return _TWO[type(op)](_value(left, metrics), _value(right, metrics))
        case ast.UnaryOp(op=op, operand=operand):
            return _ONE[type(op)](_value(operand, metrics))
        case ast.Call(func=ast.Name(id=name), args=args):
            return float(_FUNCTIONS[name](*(_value(each, metrics) for each in args)))
    raise ValueError("this is no formula")
