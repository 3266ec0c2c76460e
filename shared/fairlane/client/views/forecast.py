"""The estimate of a run: calls, tokens and cost by model, calls and time by lane."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from fairlane.store.write.lanes.lane_view import Source

Limit = Literal["requests", "tokens", "input", "output", "day", "places", "slots", "gap"]


@dataclass(frozen=True, slots=True)
class LaneForecast:
    """A lane's part. ``seconds`` is the time that it needs at its current limits; ``None``: unknown.

    ``limited_by`` names the limit that decides ``seconds``, and ``source`` where that limit comes from.
    "starting" is a lane that nothing has limited yet: it becomes faster. ``queued`` calls of other runs wait
    there already.
    """

    lane: str
    calls: int
    input_tokens: int
    output_tokens: int
    seconds: float | None
    limited_by: Limit | None
    source: Source | Literal["refusals", "latency", "deadlines", "search"] | None
    queued: int

    @property
    def tokens(self) -> int:
        """Input and output tokens."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class ModelForecast:
    """A model's part; ``cost_usd`` is ``None`` where it has no price."""

    model: str
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None

    @property
    def tokens(self) -> int:
        """Input and output tokens."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class Forecast:
    """The estimate of a run that has the deployment to itself, from ``sampled`` of its ``items``. It assumes
    no cached answers, no retries, and answers as long as the parameters allow, so that tokens and cost are
    upper bounds, unless the caller stated a length. ``invalid`` items cannot be rendered. ``seconds`` is
    ``None`` where a lane's is; ``notes`` say what the numbers leave out.
    """

    rows: int
    items: int
    sampled: int
    invalid: int
    tasks: int
    evaluations: int
    lanes: tuple[LaneForecast, ...]
    models: tuple[ModelForecast, ...]
    seconds: float | None
    notes: tuple[str, ...]

    @property
    def calls(self) -> int:
        """Calls of tasks and of evaluations."""
        return self.tasks + self.evaluations

    @property
    def tokens(self) -> int:
        """Input and output tokens of all models."""
        return sum(each.tokens for each in self.models)

    @property
    def cost_usd(self) -> float | None:
        """Dollars for all that has a price; ``None`` where nothing has one."""
        known = [each.cost_usd for each in self.models if each.cost_usd is not None]
        return math.fsum(known) if known else None

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Models that use tokens and have no price."""
        return tuple(each.model for each in self.models if each.tokens and each.cost_usd is None)

    def to_dict(self) -> dict[str, Any]:
        """Everything above, ready for JSON."""
        return {
            **asdict(self),
            "calls": self.calls,
            "tokens": self.tokens,
            "cost_usd": self.cost_usd,
            "unpriced": list(self.unpriced),
        }
