"""A lane's limits and counts in words."""

from __future__ import annotations

from fairlane.cli.output import ago
from fairlane.core.clock import until
from fairlane.model.lane import LaneLimits
from fairlane.store.write.lanes.lane_view import AxisView
from fairlane.why.reasons import per_minute, rate_in_words


def limits_in_words(limits: LaneLimits) -> str:
    """What an operator has said of a lane, in one line."""
    said = []
    if limits.requests_per_minute:
        said.append(f"{limits.requests_per_minute:,g} requests/min")
    elif limits.requests_per_minute == 0:
        said.append("requests unlimited")
    for number, unit in (
        (limits.tokens_per_minute, "tokens/min"),
        (limits.input_tokens_per_minute, "input tokens/min"),
        (limits.output_tokens_per_minute, "output tokens/min"),
        (limits.requests_per_day, "requests/day"),
    ):
        said += [f"{number:,g} {unit}"] if number else []
    if said and said != ["requests unlimited"]:
        said += ["exactly"] if limits.exact else []
        said.append(f"burst {limits.burst_seconds:g} s")
    said += _charges_in_words(limits)
    if limits.max_concurrency is not None:
        said.append(f"at most {limits.max_concurrency:,} in flight")
    if limits.first_concurrency is not None:
        said.append(f"{limits.first_concurrency:,} in flight to begin with")
    if limits.models_at_once is not None:
        models = "model" if limits.models_at_once == 1 else "models"
        said.append(f"{limits.models_at_once:,} {models} at once, {limits.model_seconds:g} s each")
    if limits.min_gap_ms:
        said.append(f"{limits.min_gap_ms:,} ms apart")
    if "longest_wait_seconds" in limits.model_fields_set:
        said.append(f"held beyond waits of {limits.longest_wait_seconds:g} s")
    return ", ".join(said) or "none stated"


def _charges_in_words(limits: LaneLimits) -> list[str]:
    """How the provider charges tokens, where that is not what most do."""
    said = []
    if limits.charge == "reserved":
        said.append("reserved tokens charged")
    if limits.output_factor != 1:
        said.append(f"output tokens count {limits.output_factor:g} times")
    if limits.cache_reads == "counted":
        said.append("cache reads counted")
    return said


def axis_in_words(name: str, axis: AxisView, now_ms: int) -> str:
    """What an axis keeps to and by whose word, then what each source says, what is left, and its shape."""
    said = []
    if axis.configured and axis.source != "configured":
        said.append(f"{per_minute(axis.configured)} configured")
    if axis.reported is not None:
        when = f", {ago(axis.reported_ms, now_ms)}" if axis.reported_ms is not None else ""
        said.append(f"headers say {per_minute(axis.reported)}{when}")
    if axis.probed is not None:
        doubt = f" ± {axis.uncertainty:,.0f}" if axis.uncertainty and axis.uncertainty < axis.probed else ""
        when = f", {ago(axis.probed_ms, now_ms)}" if axis.probed_ms is not None else ""
        said.append(f"refusals say {per_minute(axis.probed)}{doubt}{when}")
    if axis.level is not None and axis.allowed is not None:
        said.append(f"{per_minute(axis.level)} left")
    if axis.shape == "window" and axis.renews_ms is not None:
        said.append(f"a window that renews {until(axis.renews_ms, now_ms)}")
    elif axis.shape == "bucket":
        said.append("a bucket")
    return "; ".join([rate_in_words(name, axis), *said])


def short_count(count: int) -> str:
    """A count in at most seven characters: ``"999,999"``, ``"1.23M"``, ``"45.6G"``."""
    for size, unit in ((10**9, "G"), (10**6, "M")):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return f"{count:,}"
