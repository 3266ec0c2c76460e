"""What a rendering may cost: every size a template can reach is weighed and charged against one allowance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jinja2 import UndefinedError
from jinja2.exceptions import TemplateRuntimeError
from jinja2.runtime import Context, StrictUndefined, Undefined
from jinja2.utils import missing

MAX_CHARS = 1 << 20
"""Longest text, in characters, that a rendering or any string inside it may have."""

ALLOWANCE = 1_000_000
"""Units one rendering may spend: a value handled, 64 characters handled or a template node in one round of
a loop cost one each. Well under a second of work at the very worst; usual prompts spend a few dozen."""


_NOTHING: dict[str, str] = {}
_VIEWS: tuple[type, ...] = (type(_NOTHING.keys()), type(_NOTHING.values()), type(_NOTHING.items()))
_CONTAINERS: tuple[Any, ...] = (list, tuple, dict, *_VIEWS)


class WorkLimitError(TemplateRuntimeError):
    """The template asks for more than `ALLOWANCE`, or for a value longer than `MAX_CHARS`."""


class MissingVariableError(UndefinedError):
    """A variable or an attribute that the template needs does not exist; ``name`` is its last part."""

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        self.name = name


class RowUndefined(StrictUndefined):
    """A missing value that says which field it misses as soon as it is used."""

    __slots__ = ()

    # Jinja's other operations on an undefined value are aliases that were bound to its own method.
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
    """The variables of one rendering, and what it has left to spend."""

    remaining = ALLOWANCE

    def charge(self, units: int) -> None:
        """Spend ``units``; raises `WorkLimitError` when the allowance is gone."""
        self.remaining -= units
        if self.remaining < 0:
            raise WorkLimitError("it takes too much work to render: shorten its loops or the row's values")

    def weigh(self, value: object) -> None:
        """Charge for ``value`` with everything inside it; shared parts count as often as they are reached."""
        if isinstance(value, str):
            self.charge(1 + (len(value) >> 6))
        elif isinstance(value, _CONTAINERS):
            self._weigh_parts(value)
        else:
            self.charge(1)

    def _weigh_parts(self, value: Any) -> None:
        waiting: list[Iterator[Any]] = [iter((value,))]
        while waiting:
            for part in waiting[-1]:
                if isinstance(part, str):
                    self.charge(1 + (len(part) >> 6))
                    continue
                self.charge(1)
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


def bounded(length: int) -> None:
    """Refuse a string of ``length`` characters before it is built. Raises `WorkLimitError`."""
    if length > MAX_CHARS:
        raise WorkLimitError(f"a text of {length:,} characters is longer than the {MAX_CHARS:,} allowed")
