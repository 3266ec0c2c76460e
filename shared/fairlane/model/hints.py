"""Limits that a provider reports in its responses, in one form for all providers."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Axis = Literal["requests", "tokens", "input", "output", "day", "concurrency", "unnamed"]
"""A limited quantity: requests, all, input or output tokens a minute, requests a day, concurrent calls.

``unnamed``: a header reports a limit a minute without its quantity, which the lane infers.
"""

AXES: tuple[Axis, ...] = ("requests", "tokens", "input", "output")
"""The axes with a rate per minute."""


class AxisHint(NamedTuple):
    """One axis as a response reports it; a figure that it does not report is ``None``.

    ``limit`` is the amount per minute; per day on the axis ``day``, at once on ``concurrency``.
    ``remaining`` is the unused part of it, ``reset_ms`` the time until the provider renews it.
    """

    limit: float | None = None
    remaining: float | None = None
    reset_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Hints:
    """The limits that one response reports. ``exhausted`` is the axis that a 429 names.

    It is ``growth`` where the 429 says that the rate grew too fast, at whatever height.
    """

    axes: Mapping[Axis, AxisHint] = field(default_factory=dict)
    exhausted: Axis | Literal["growth"] | None = None

    def __bool__(self) -> bool:
        return bool(self.axes) or self.exhausted is not None

    def to_json(self) -> str:
        """``{"<axis>": [limit, remaining, reset_ms], "exhausted": "<axis>"}``; -1: not reported."""
        document: dict[str, object] = {
            axis: [-1 if value is None else value for value in hint] for axis, hint in self.axes.items()
        }
        if self.exhausted is not None:
            document["exhausted"] = self.exhausted
        return json.dumps(document, separators=(",", ":"))
