"""What a child process finds in its environment: ours, with a few changes."""

from __future__ import annotations

import os
from collections.abc import Mapping


def child_environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    """This process's environment with ``changes`` applied; ``None`` takes a variable away.

    Nothing is read from it here: a child inherits what its user set, credentials of a worker among them.
    """
    inherited = dict(os.environ)  # noqa: TID251 - handed on whole, never read
    for name, value in changes.items():
        if value is None:
            inherited.pop(name, None)
        else:
            inherited[name] = value
    return inherited
