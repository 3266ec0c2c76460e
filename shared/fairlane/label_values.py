"""Keeps the values of a metric's labels few: whoever comes after the first so many is counted as one."""

from __future__ import annotations

from typing import TypeAlias

OTHER = "(other)"
"""No team and no lane can be called so."""

Values: TypeAlias = tuple[str, ...]


class LabelValues:
    """The first ``most`` combinations keep their names for as long as the process lives.

    Thread-safe: two threads that ask at once may let one more in than ``most``, never more.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[Values, Values] = {}

    def known(self) -> list[Values]:
        """Those that keep their names."""
        return list(self._known)

    def of(self, *values: str) -> Values:
        """The values themselves, or `OTHER` for each of them."""
        known = self._known.get(values)
        if known is not None:
            return known
        if len(self._known) >= self._most:
            return (OTHER,) * len(values)
        return self._known.setdefault(values, values)
