"""What a provider says of its limits, in one form for all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Axis = Literal["requests", "tokens", "input", "output", "day", "concurrency"]
"""What may be limited: requests, total, input and output tokens a minute, requests a day, calls in flight."""

AXES: tuple[Axis, ...] = ("requests", "tokens", "input", "output")
"""Those with a rate a minute."""


class AxisHint(NamedTuple):
    """One axis as an answer tells it; ``None`` where it does not.

    ``limit`` is what is allowed a minute (a day on the axis ``day``, at once on ``concurrency``),
    ``remaining`` what is left of it, ``reset_ms`` how long until the provider calls it renewed.
    """

    limit: float | None = None
    remaining: float | None = None
    reset_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Hints:
    """What one answer tells of the limits. ``exhausted`` is the axis that a refusal was for."""

    axes: Mapping[Axis, AxisHint] = field(default_factory=dict)
    exhausted: Axis | None = None

    def __bool__(self) -> bool:
        return bool(self.axes) or self.exhausted is not None

    def to_json(self) -> str:
        """``{"<axis>": [limit, remaining, reset_ms], "exhausted": "<axis>"}``; -1: not told."""
        told: dict[str, object] = {
            axis: [-1 if value is None else value for value in hint] for axis, hint in self.axes.items()
        }
        if self.exhausted is not None:
            told["exhausted"] = self.exhausted
        return json.dumps(told, separators=(",", ":"))
