"""What a child process finds in its environment: ours, with a few changes."""

from __future__ import annotations

from collections.abc import Mapping

from fairlane.config.environment import process_environment


def child_environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    """This process's environment with ``changes`` applied; ``None`` takes a variable away.

    It is handed on whole: a child inherits what its user set, a worker's credentials among them.
    """
    merged: dict[str, str | None] = {**process_environment(), **changes}
    return {name: value for name, value in merged.items() if value is not None}
