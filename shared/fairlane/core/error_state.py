"""Makes errors survive pickling, as in pools of processes, and `copy.deepcopy`."""

import pickle  # noqa: TID251 - only to see whether a value of an error would survive it
import reprlib
from typing import Any, TypeVar

E = TypeVar("E", bound=BaseException)

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 120
_SHORT.maxdict = _SHORT.maxlist = 8
_SHORT.maxlevel = 3

_PLAIN = (str, int, float, bool, type(None))


def shown(value: object) -> str:
    """A value for an error's message, shortened."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # an integer too long for Python to print
        return f"a very long {type(value).__name__}"


def reduced(error: BaseException) -> tuple[Any, ...]:
    """What ``__reduce__`` of an error returns: its arguments, attributes and notes.

    An attribute that does not survive pickling becomes its text.
    """
    state = {name: _portable(value) for name, value in error.__dict__.items()}
    return rebuilt, (type(error), tuple(map(_portable, error.args)), state)


def rebuilt(kind: type[E], args: tuple[Any, ...], state: dict[str, Any]) -> E:
    """Rebuild an error without its own ``__init__``, whose arguments are not the ``args`` that it stores."""
    error = kind.__new__(kind)
    native: Any = next(base for base in kind.__mro__ if base.__module__ == "builtins")
    native.__init__(error, *args)
    error.__dict__.update(state)
    return error


def _portable(value: object) -> object:
    if type(value) in _PLAIN:
        return value
    try:
        pickle.loads(pickle.dumps(value))  # noqa: S301 - what this process has just written
    except Exception:  # noqa: BLE001 - whatever the code of a foreign value raises
        return shown(value)
    return value
