"""A generated provider and its work as data: all that a seed decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fairlane.lab.simulator.config import HeaderStyle
from fairlane.model.hints import Axis
from fairlane.model.lane import LaneLimits

Shape = Literal["bucket", "window", "sliding"]
Charge = Literal["used", "reserved", "refunded"]
View = Literal["none", "true", "minute", "stale", "other"]
LatencyShape = Literal["constant", "lognormal", "bimodal", "pareto"]
OutageForm = Literal["503", "529", "500", "refused", "hang", "malformed", "429"]
Names = Literal["nothing", "axis", "limit"]
WaitForm = Literal["none", "milliseconds", "seconds", "fraction", "date"]
Style = HeaderStyle | Literal["anthropic"]


@dataclass(frozen=True, slots=True)
class AxisLimit:
    """One limit. ``span_s`` is a bucket's depth in seconds of its rate, or a window's length.

    A fixed window may have begun before the start: ``phase_s`` seconds before, with the share ``spent`` of
    its amount already used.
    """

    axis: Axis
    per_minute: float
    shape: Shape
    span_s: float
    phase_s: float = 0.0
    spent: float = 0.0


@dataclass(frozen=True, slots=True)
class Latency:
    """An admitted call's latency. With ``reference`` calls in flight it is 1 + ``growth`` times as long."""

    shape: LatencyShape
    median_s: float
    spread: float
    growth: float = 0.0
    reference: float = 1.0


@dataclass(frozen=True, slots=True)
class Signals:
    """What answers report. ``wait_error`` multiplies each Retry-After; 1 is exact.

    ``view`` is "true" for the limits as they are, and "minute" as if each were a bucket that holds a minute.
    "stale" figures are renewed every ``stale_s``. "other" reports axes without a limit, "none" no limits.
    ``on_success``: whether successes carry these headers, too. ``names``: what a 429's sentence names.
    """

    style: Style
    view: View
    on_success: bool = True
    stale_s: float = 0.0
    wait_form: WaitForm = "none"
    wait_error: float = 1.0
    names: Names = "nothing"


@dataclass(frozen=True, slots=True)
class Outage:
    """From ``at_s`` on, for ``lasts_s``, ``share`` of all calls fail. ``wait_s``: a 503's Retry-After."""

    at_s: float
    lasts_s: float
    form: OutageForm
    share: float = 1.0
    wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """From ``at_s`` on, limits are ``factor`` times their initial rates, of which others use ``others``."""

    at_s: float
    factor: float
    others: float = 0.0


@dataclass(frozen=True, slots=True)
class Work:
    """The tokens of each call. ``max_tokens`` is ``None`` if the user states none."""

    input_tokens: int
    output_tokens: float
    output_spread: float
    max_tokens: int | None
    most_output: int


@dataclass(frozen=True, slots=True)
class World:
    """A provider, the calls to make, and the network. ``traits`` names what is unusual, for the report."""

    seed: int
    traits: tuple[str, ...]
    limits: tuple[AxisLimit, ...]
    steps: tuple[Step, ...]
    most_at_once: int | None
    at_once_status: int
    charge: Charge
    output_factor: float
    counts_refused: bool
    latency: Latency
    signals: Signals
    outages: tuple[Outage, ...]
    fault_share: float
    work: Work
    one_way_ms: float
    configured: LaneLimits | None
    horizon_s: float

    @property
    def horizon_ms(self) -> int:
        """The horizon in milliseconds: figures count calls within it."""
        return round(self.horizon_s * 1000)

    @property
    def largest_output(self) -> int:
        """The most output tokens that an answer can have."""
        asked = self.work.max_tokens
        return self.work.most_output if asked is None else min(asked, self.work.most_output)
