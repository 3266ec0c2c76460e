"""Bounds the work of one rendering: each value and loop is charged against one allowance."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from jinja2 import UndefinedError
from jinja2.exceptions import TemplateRuntimeError
from jinja2.runtime import Context, StrictUndefined, Undefined
from jinja2.utils import missing

from fairlane.model.run import PROMPT_CHARS

MAX_CHARS = PROMPT_CHARS
"""Longest text of a template, in characters, and of a rendering without its own `Bound`."""

ROW_SETTING, ANSWER_SETTING = "scheduler.limits.row_bytes", "worker.max_response_bytes"

ALLOWANCE = 1_000_000
"""Units that one rendering may spend. A value, 64 characters, 64 bits of a whole number, or a template node
in one pass of a loop cost one each. At worst that is less than a second of work; usual prompts spend a few
dozen."""


_NOTHING: dict[str, str] = {}
_VIEWS: tuple[type, ...] = (type(_NOTHING.keys()), type(_NOTHING.values()), type(_NOTHING.items()))
_CONTAINERS: tuple[Any, ...] = (list, tuple, dict, *_VIEWS)


class WorkLimitError(TemplateRuntimeError):
    """The template needs more than `ALLOWANCE`, or a value longer than its `Bound`."""


class MissingVariableError(UndefinedError):
    """A variable or an attribute that the template needs does not exist; ``name`` is its last part."""

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        self.name = name


class Bound(NamedTuple):
    """The longest text of a rendering, and of any string in it; ``setting`` is what an operator raises."""

    chars: int = MAX_CHARS
    setting: str = ROW_SETTING

    def check(self, length: int) -> None:
        """Raise `WorkLimitError` for a rendered text that is longer."""
        if length > self.chars:
            raise WorkLimitError(f"it renders to more than {self.chars:,} characters. {self.remedy}")

    @property
    def remedy(self) -> str:
        """The remedy for a longer text."""
        return f"Shorten the row's values, or raise {self.setting}, at clients and schedulers"


DEFAULT = Bound()

_bound: ContextVar[Bound] = ContextVar("bound", default=DEFAULT)
"""The bound of the current rendering, for operators and string methods, which know no template."""


@contextmanager
def rendering_within(bound: Bound) -> Iterator[None]:
    """Apply ``bound`` to all strings built inside the block."""
    token = _bound.set(bound)
    try:
        yield
    finally:
        _bound.reset(token)


class NullError(UndefinedError):
    """The template prints a null: the prompt would have the word "None"."""

    def __init__(self) -> None:
        super().__init__("a value that it prints is null")


class RowUndefined(StrictUndefined):
    """A missing value: its first use raises an error that names the field."""

    __slots__ = ()

    # Jinja's operations on an undefined value are aliases bound to its own method, so each is set anew.
    def _fail_with_undefined_error(self, *args: Any, **kwargs: Any) -> Any:
        name = str(self._undefined_name)
        if self._undefined_obj is missing:
            raise MissingVariableError(f"the row has no field {name!r}", name)
        raise MissingVariableError(f"there is no {name!r} in this {type(self._undefined_obj).__name__}", name)

    __iter__ = __str__ = __len__ = _fail_with_undefined_error
    __eq__ = __ne__ = __bool__ = __hash__ = __contains__ = _fail_with_undefined_error
    __add__ = __radd__ = __sub__ = __rsub__ = _fail_with_undefined_error
    __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _fail_with_undefined_error
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _fail_with_undefined_error
    __pow__ = __rpow__ = __pos__ = __neg__ = _fail_with_undefined_error
    __lt__ = __le__ = __gt__ = __ge__ = _fail_with_undefined_error
    __int__ = __float__ = __complex__ = _fail_with_undefined_error
    __call__ = __getitem__ = _fail_with_undefined_error


class MeteredContext(Context):
    """The variables of one rendering, and the rest of its allowance."""

    remaining = ALLOWANCE

    def charge(self, units: int) -> None:
        """Spend ``units``; raises `WorkLimitError` when the allowance is used up."""
        self.remaining -= units
        if self.remaining < 0:
            raise WorkLimitError("it takes too much work to render: shorten its loops or the row's values")

    def weigh(self, value: object) -> None:
        """Charge for ``value`` and all values inside it; a shared value counts each time it is reached."""
        if isinstance(value, str):
            self.charge(1 + (len(value) >> 6))
        elif isinstance(value, _CONTAINERS):
            self._weigh_parts(value)
        else:
            self.charge(1 + _words(value))

    def _weigh_parts(self, value: Any) -> None:
        waiting: list[Iterator[Any]] = [iter((value,))]
        while waiting:
            for part in waiting[-1]:
                if isinstance(part, str):
                    self.charge(1 + (len(part) >> 6))
                    continue
                self.charge(1 + _words(part))
                if isinstance(part, Undefined):
                    part._fail_with_undefined_error()
                if isinstance(part, dict):
                    waiting += (iter(part.keys()), iter(part.values()))
                    break
                if isinstance(part, _CONTAINERS):
                    waiting.append(iter(part))
                    break
            else:
                waiting.pop()


def printed(value: object) -> object:
    """What a template prints for ``value``: JSON for objects, lists and truth values, anything else
    unchanged. Rows are JSON, so Python's ``{'a': True}`` would be foreign to them.
    """
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list, tuple, bool)) else value


def _words(value: object) -> int:
    """Words of 64 bits in a whole number, to which the cost of arithmetic is proportional."""
    return value.bit_length() >> 6 if isinstance(value, int) else 0


def bounded(length: int) -> None:
    """Check the length of a string before it is built. Raises `WorkLimitError`."""
    bound = _bound.get()
    if length > bound.chars:
        problem = f"a text of {length:,} characters is longer than the {bound.chars:,} allowed"
        raise WorkLimitError(f"{problem}. {bound.remedy}")
