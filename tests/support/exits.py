"""How a process ended, as a shell reports it."""

from __future__ import annotations

BY_SIGNAL = 128


def exit_status(returncode: int) -> int:
    """The exit status that a shell shows for what `subprocess` returned.

    To a shell, a process that ends with 130 and one that ends by SIGINT are the same. Python ends by SIGINT
    if Ctrl-C hits code that a module executes from text, as dataclasses do, even if it is handled then.
    """
    return returncode if returncode >= 0 else BY_SIGNAL - returncode
