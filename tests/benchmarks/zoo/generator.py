"""Generates a world from a seed. All probabilities and ranges of the zoo are in this file."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import TypeVar

from fairlane.model.hints import Axis
from fairlane.model.lane import LaneLimits
from tests.benchmarks.zoo.oracle import best_schedule
from tests.benchmarks.zoo.world import (
    AxisLimit,
    Charge,
    Latency,
    LatencyShape,
    Names,
    Outage,
    OutageForm,
    Shape,
    Signals,
    Step,
    Style,
    View,
    WaitForm,
    Work,
    World,
)

T = TypeVar("T")

LEAST_PER_MINUTE, MOST_PER_MINUTE = 3.0, 60_000.0
SHALLOWEST_S, DEEPEST_S = 0.05, 60.0
LONGEST_WINDOW_S = 86_400.0
MOST_HORIZON_S = 400.0
"""Limits the CPU time of a world: a virtual second without calls costs about 5 ms, a call about 3 ms."""
SPANS_SEEN = 6
"""A horizon is at least this many bucket depths or windows long, so that the first burst weighs little."""
FAST_PER_MINUTE, FAST_SHARE = 4_500.0, 0.1
"""The share of worlds whose limit is faster than so many calls a minute. It is small: such a world uses up
``most_calls`` within seconds, which is little time to detect a limit."""
LEAST_HORIZON_S = 40.0
"""The shortest horizon, if ``most_calls`` allows it: several answers then come in its first half."""
LATENCIES_SEEN = 8


@dataclass(frozen=True, slots=True)
class Size:
    """Bounds on generated worlds: number of calls, horizon, and rate of the limit that binds."""

    least_calls: int
    usual_calls: int
    most_calls: int
    longest_s: float
    least_per_minute: float
    most_per_minute: float


FULL = Size(100, 800, 3000, MOST_HORIZON_S, LEAST_PER_MINUTE, MOST_PER_MINUTE)
SMALL = Size(30, 70, 100, 24.0, 60.0, 1_200.0)
"""For CI: one world costs about half a second of CPU."""


def generate(seed: int, size: Size = FULL) -> World:
    """The world of a seed; the same seed and size always give the same one."""
    return _Generator(seed, size).world()


class _Generator:
    def __init__(self, seed: int, size: Size) -> None:
        self._seed, self._size = seed, size
        self._rng = random.Random(f"zoo/{seed}")
        self._traits: list[str] = []

    def world(self) -> World:
        rng = self._rng
        configured = self._happens(0.25, "configured")
        work, charge, factor = self._work(configured)
        per_minute = self._rate()
        calls = self._log_uniform(self._size.least_calls, self._size.usual_calls)
        calls = min(self._size.most_calls, max(calls, per_minute / 60 * LEAST_HORIZON_S))
        horizon_s = min(self._size.longest_s, calls * 60 / per_minute)
        latency = self._latency(horizon_s)
        most_at_once, status = self._concurrency(latency, per_minute)
        if most_at_once is None and charge != "refunded" and self._happens(0.2, "latency grows with load"):
            # At a steady ``per_minute`` calls, the latency is then median / (1 - growth).
            reference = max(1.0, per_minute / 60 * latency.median_s)
            latency = replace(latency, growth=rng.uniform(0.1, 0.6), reference=reference)
        limits = self._limits(work, factor, per_minute, horizon_s, configured, charge)
        long = any(limit.span_s > horizon_s for limit in limits)
        horizon_s = _whole_windows(limits, horizon_s)
        steps = () if configured else self._steps(horizon_s)
        world = World(
            seed=self._seed,
            traits=(),
            limits=limits,
            steps=steps,
            most_at_once=most_at_once,
            at_once_status=status,
            charge=charge,
            output_factor=factor,
            counts_refused=self._happens(0.25, "refused calls count"),
            latency=latency,
            signals=self._signals(limits, long),
            outages=self._outages(horizon_s),
            fault_share=self._rng.choice((0.002, 0.01)) if self._happens(0.1, "faults") else 0.0,
            work=work,
            one_way_ms=self._log_uniform(2.0, 40.0),
            configured=self._configured(limits, charge, factor, most_at_once) if configured else None,
            horizon_s=horizon_s,
        )
        return self._bounded(world)

    def _bounded(self, world: World) -> World:
        """The world with its traits, cut to a horizon in which the oracle makes few enough calls."""
        times = best_schedule(world, self._size.most_calls + 1).times_ms
        horizon_s = world.horizon_s
        if len(times) > self._size.most_calls:
            horizon_s = max(1.0, times[self._size.most_calls] / 1000)
        return replace(world, traits=tuple(self._traits), horizon_s=horizon_s)

    def _limits(
        self,
        work: Work,
        factor: float,
        per_minute: float,
        horizon_s: float,
        configured: bool,
        charge: Charge,
    ) -> tuple[AxisLimit, ...]:
        """The limit that binds, at ``per_minute`` calls, and limits of other axes, 1 to 7 times as loose."""
        rng = self._rng
        outputs = work.output_tokens
        if charge == "reserved":
            outputs = float(min(work.max_tokens or work.most_output, work.most_output))
        tokens_of: dict[Axis, float] = {
            "requests": 1.0,
            "tokens": work.input_tokens + outputs * factor,
            "input": float(work.input_tokens),
            "output": outputs * factor,
        }
        sets: tuple[tuple[Axis, ...], ...] = (
            ("requests",), ("requests",), ("tokens",), ("requests", "tokens"), ("requests", "tokens"),
            ("input", "output"), ("requests", "input", "output"),
        )  # fmt: skip
        axes = rng.choice(sets)
        if configured and charge != "reserved":
            axes = ("requests",)  # without reservations, a call's tokens are unknown until it ends
        binding = rng.choice(axes)
        self._traits.append(f"{binding} bind")
        limits = []
        for axis in axes:
            slack = 1.0 if axis == binding else math.exp(rng.uniform(0.0, 2.0))
            rate = per_minute * slack * tokens_of[axis]
            most_at_a_time = 60 * tokens_of[axis] / rate  # seconds in which the rate allows one call
            limits.append(self._limit(axis, rate, most_at_a_time, horizon_s, configured))
        if not configured and rng.random() < 0.04:
            self._traits.append("a day's quota")
            calls = per_minute * horizon_s / 60
            quota = max(2.0, calls * rng.uniform(0.4, 0.9))
            phase_s = LONGEST_WINDOW_S - rng.uniform(0.3, 1.5) * horizon_s
            limits.append(AxisLimit("day", quota / 1440, "window", LONGEST_WINDOW_S, phase_s))
        return tuple(limits)

    def _limit(self, axis: Axis, rate: float, call_s: float, horizon_s: float, configured: bool) -> AxisLimit:
        rng = self._rng
        most_s = max(horizon_s / SPANS_SEEN, SHALLOWEST_S)
        windows = [span_s for span_s in (1.0, 5.0, 10.0, 60.0) if span_s <= most_s]
        # For limits so slow that a minute holds few calls, also windows of exactly 2 and 20 calls.
        windows += [span_s for span_s in (2 * call_s, 20 * call_s) if 1.0 <= span_s <= most_s]
        windows = [span_s for span_s in windows if span_s >= 2 * call_s]
        shape: Shape = rng.choice(("bucket", "bucket", "window", "sliding"))
        if shape != "bucket" and not configured and rng.random() < 0.1:
            span_s = rng.choice((3600.0, LONGEST_WINDOW_S))
            self._traits.append(f"{axis} {shape} {span_s:g} s")
            phase_s = span_s - rng.uniform(0.3, 1.5) * horizon_s if shape == "window" else 0.0
            quota_rate = rate * horizon_s / span_s * rng.uniform(0.5, 1.5)
            return AxisLimit(axis, quota_rate, shape, span_s, max(0.0, phase_s))
        if shape == "bucket" or configured or not windows:
            # A configured burst leaves room for one more call, since the network's jitter bunches calls.
            shallowest_s = max(1.0, 2.5 * call_s) if configured else SHALLOWEST_S
            deepest_s = max(shallowest_s, min(DEEPEST_S, most_s))
            depth_s = self._log_uniform(min(shallowest_s, DEEPEST_S), min(deepest_s, DEEPEST_S))
            self._traits.append(f"{axis} {_named(depth_s)} deep")
            return AxisLimit(axis, rate, "bucket", depth_s)
        span_s = rng.choice(windows)
        self._traits.append(f"{axis} {shape} {_named(span_s)}")
        phase_s = rng.uniform(0.0, span_s) if shape == "window" and rng.random() < 0.5 else 0.0
        spent = rng.uniform(0.0, 0.8) if phase_s and rng.random() < 0.5 else 0.0
        return AxisLimit(axis, rate, shape, span_s, phase_s, spent)

    def _work(self, configured: bool) -> tuple[Work, Charge, float]:
        rng = self._rng
        charge: Charge = rng.choice(("used", "used", "used", "reserved", "refunded"))
        if configured and rng.random() < 0.4:
            charge = "reserved"
        factor = rng.choice((2.0, 5.0)) if rng.random() < 0.08 else 1.0
        outputs = self._log_uniform(8.0, 1000.0)
        stated = charge == "reserved" or rng.random() < 0.5
        max_tokens = round(outputs * rng.uniform(1.2, 5.0)) if stated else None
        if charge != "used":
            self._traits.append(f"tokens {charge}")
        if max_tokens is None:
            self._traits.append("no max_tokens")
        if factor != 1.0:
            self._traits.append(f"output counts {factor:g} times")
        work = Work(
            input_tokens=round(self._log_uniform(20.0, 3000.0)),
            output_tokens=outputs,
            output_spread=rng.uniform(0.0, 0.8),
            max_tokens=max_tokens,
            most_output=round(outputs * 5.0),
        )
        return work, charge, factor

    def _rate(self) -> float:
        """The calls a minute at which the binding limit binds."""
        least, most = self._size.least_per_minute, self._size.most_per_minute
        if most <= FAST_PER_MINUTE or self._rng.random() >= FAST_SHARE:
            return self._log_uniform(least, min(most, FAST_PER_MINUTE))
        return self._log_uniform(FAST_PER_MINUTE, most)

    def _latency(self, horizon_s: float) -> Latency:
        rng = self._rng
        shapes: tuple[LatencyShape, ...] = ("constant", "lognormal", "lognormal", "bimodal", "pareto")
        shape = rng.choice(shapes)
        median_s = self._log_uniform(0.2, max(0.25, min(20.0, horizon_s / LATENCIES_SEEN)))
        self._traits.append(f"latency {shape} {_named(median_s)}")
        return Latency(shape, median_s, rng.uniform(0.1, 0.8))

    def _concurrency(self, latency: Latency, per_minute: float) -> tuple[int | None, int]:
        """A limit on calls at once, near what the rate needs; few providers answer it by 503."""
        rng = self._rng
        if not rng.random() < 0.2:
            return None, 429
        needed = per_minute / 60 * latency.median_s
        most = min(400, max(1, round(needed * math.exp(rng.uniform(-1.2, 0.8)))))
        status = 503 if rng.random() < 0.2 else 429
        self._traits.append(f"{most} at once" + (" (503)" if status == 503 else ""))
        return most, status

    def _steps(self, horizon_s: float) -> tuple[Step, ...]:
        rng, kind = self._rng, self._rng.random()
        if kind < 0.10:
            self._traits.append("limit steps")
            at = sorted(rng.uniform(0.25, 0.8) for _ in range(rng.choice((1, 2))))
            return tuple(Step(share * horizon_s, rng.choice((0.33, 0.5, 1.5, 2.0, 3.0))) for share in at)
        if kind < 0.16:
            self._traits.append("limit ramps")
            target, parts = rng.choice((0.4, 2.5)), 20
            return tuple(
                Step(horizon_s * (0.3 + 0.4 * n / parts), 1 + (target - 1) * n / parts)
                for n in range(1, parts + 1)
            )
        if kind < 0.22:
            self._traits.append("limit follows the hour")
            parts, phase = 40, rng.uniform(0, math.tau)
            begin = math.sin(phase)
            return tuple(
                Step(horizon_s * n / parts, 1 + 0.4 * (math.sin(phase + math.tau * n / parts) - begin))
                for n in range(1, parts)
            )
        if kind < 0.32:
            self._traits.append("others on the key")
            begins, lasts = rng.uniform(0.0, 0.6), rng.uniform(0.15, 0.5)
            share = rng.uniform(0.2, 0.8)
            return (Step(begins * horizon_s, 1.0, share), Step((begins + lasts) * horizon_s, 1.0, 0.0))
        return ()

    def _signals(self, limits: tuple[AxisLimit, ...], long: bool) -> Signals:
        rng = self._rng
        views: tuple[View, ...] = ("none", "none", "true", "true", "minute", "stale", "other")
        view = "none" if long else rng.choice(views)  # headers of a minute cannot show an hour's window
        token_axes = {limit.axis for limit in limits} & {"input", "output"}
        split: tuple[Style, ...] = ("anthropic", "fireworks")
        joint: tuple[Style, ...] = (
            "protocol", "protocol", "azure", "together", "mistral", "cerebras", "xai", "ietf", "groq",
            "anthropic",
        )  # fmt: skip
        style = rng.choice(split if token_axes else joint)
        forms: tuple[WaitForm, ...] = ("none", "milliseconds", "seconds", "seconds", "fraction", "date")
        form = rng.choice(forms)
        error = rng.choice((0.1, 10.0)) if form != "none" and rng.random() < 0.15 else 1.0
        on_success = view == "none" or rng.random() < 0.85
        if view != "none":
            self._traits.append(f"headers {view} ({style})" + ("" if on_success else " on 429s alone"))
        if form != "none":
            wrong = "" if error == 1.0 else f" wrong by {error:g}"
            self._traits.append(f"Retry-After {form}{wrong}")
        stale_s = self._log_uniform(1.0, 30.0) if view == "stale" else 0.0
        return Signals(style, view, on_success, stale_s, form, error, self._names())

    def _names(self) -> Names:
        """What 429s name in prose, drawn apart: the rest of a world is the same with and without it."""
        drawn: tuple[Names, ...] = ("nothing", "axis", "limit")
        names = random.Random(f"zoo/names/{self._seed}").choice(drawn)
        if names != "nothing":
            self._traits.append(f"429s name the {names}")
        return names

    def _outages(self, horizon_s: float) -> tuple[Outage, ...]:
        rng = self._rng
        if rng.random() >= 0.15:
            return ()
        forms: tuple[OutageForm, ...] = ("503", "529", "500", "refused", "hang", "malformed")
        form = rng.choice(forms)
        share = 0.5 if form in ("503", "529") and rng.random() < 0.3 else 1.0
        lasts_s = min(horizon_s * 0.2, rng.choice((5.0, 20.0, 60.0, 120.0)))
        wait_s = rng.choice((1.0, 5.0, 30.0)) if form in ("503", "529") and rng.random() < 0.3 else None
        self._traits.append(f"outage {form}" + (" of half" if share < 1 else "") + f" {_named(lasts_s)}")
        return (Outage(rng.uniform(0.2, 0.7) * horizon_s, lasts_s, form, share, wait_s),)

    def _configured(
        self, limits: tuple[AxisLimit, ...], charge: Charge, factor: float, most_at_once: int | None
    ) -> LaneLimits:
        """The true limits, as an operator configures them: a burst of half the shallowest bucket."""
        rates = {limit.axis: limit.per_minute for limit in limits}
        depth_s = min((limit.span_s for limit in limits if limit.shape == "bucket"), default=1.0)
        return LaneLimits(
            requests_per_minute=rates.get("requests"),
            tokens_per_minute=rates.get("tokens"),
            input_tokens_per_minute=rates.get("input"),
            output_tokens_per_minute=rates.get("output"),
            charge="reserved" if charge == "reserved" else "used",
            output_factor=factor,
            burst_seconds=depth_s / 2,
            max_concurrency=most_at_once,
        )

    def _happens(self, probability: float, trait: str) -> bool:
        happens = self._rng.random() < probability
        if happens:
            self._traits.append(trait)
        return happens

    def _log_uniform(self, low: float, high: float) -> float:
        return math.exp(self._rng.uniform(math.log(low), math.log(high)))


def _whole_windows(limits: tuple[AxisLimit, ...], horizon_s: float) -> float:
    """The horizon, cut just before a window of the longest fixed windows begins."""
    spans = [limit for limit in limits if limit.shape == "window" and limit.span_s <= horizon_s]
    if not spans:
        return horizon_s
    longest = max(spans, key=lambda limit: limit.span_s)
    whole = math.floor((horizon_s + longest.phase_s) / longest.span_s)
    return whole * longest.span_s - longest.phase_s - 0.001


def _named(seconds: float) -> str:
    return f"{seconds:.3g} s"
