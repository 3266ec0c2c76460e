"""The learner: the best that a caller can do who knows what a world is like, and not the numbers.

It knows which axis binds, whether by a bucket or a window, and the window's length. It knows each call's
charge, the other axes' limits, how limits move, and how long answers take. It does not know the rate of the
axis that binds, a bucket's depth, nor how many calls fit at once. It sends what its `Belief` holds for safe.
It also sends one call at a time that is more likely admitted than not, if that may gain more time than a 429
costs. It hears of a refusal, or that there was none, after a round trip. It obeys each Retry-After, also a
wrong one, as Fairlane does.

A *blind* learner knows less. It is not told whether that limit is a bucket or a window of which length
(`Forms`). And it hears that a call was admitted with its answer, as Fairlane does. So it has more calls on
their way at a time: until a 429, as many as were answered, as in TCP's slow start (RFC 5681).

Where limits are configured a learner is the oracle within the configured burst. Where true headers report
them, it is the oracle from the first answer on.
"""

from __future__ import annotations

import heapq
import math
import random
from bisect import bisect_right
from dataclasses import dataclass
from itertools import count

from fairlane.model.hints import Axis
from tests.benchmarks.zoo.admission import Admission, Draw, amounts, draw
from tests.benchmarks.zoo.belief import TICK_MS, Answer, Belief, Prior
from tests.benchmarks.zoo.forms import Forms
from tests.benchmarks.zoo.gates import NEVER
from tests.benchmarks.zoo.generator import DEEPEST_S, LEAST_PER_MINUTE, MOST_PER_MINUTE, SHALLOWEST_S
from tests.benchmarks.zoo.oracle import MOST_CALLS, Schedule, as_configured, best_schedule
from tests.benchmarks.zoo.provider import QUICK_MS, TIMEOUT_MS
from tests.benchmarks.zoo.signals import Signs
from tests.benchmarks.zoo.world import AxisLimit, Outage, World

SURE, SAFE = 0.9999, 0.98
"""Any number of calls are on their way that are admitted with the first probability, few with the second."""
UNHEARD = 0.1
"""How many those are, as a share of the calls that were admitted so far."""
RISK = 0.5
"""One call may be on its way that is admitted with this probability: a 429 then halves the guesses."""
WORTH = 0.03
"""The share of the time between two calls that such a call must gain: less does not pay for a 429."""
FIRST_CALLS = 30
"""How many calls a blind learner has on their way before the first answer: thrice TCP's (RFC 6928)."""
LATELY, PACED = 2.0, 1.5
"""After a 429 it has up to `PACED` times the calls on their way that began in the last `LATELY` latencies."""
MOST_AT_ONCE = 400
LOOK_MS = 250.0
"""How long after a failure it looks again whether an outage has ended."""
LONG = 4.0
"""After so many usual latencies without an answer, a call hangs."""
MS_PER_S = 1000.0


@dataclass(frozen=True, slots=True)
class Learned:
    """What a learner had: its successful calls, all its calls that met a limit or none, and those refused."""

    schedule: Schedule
    calls: int
    refused: int


@dataclass(slots=True)
class _Pending:
    known_ms: float
    axis: Axis | None
    call: Answer | None
    in_flight: int
    risky: bool
    shown_ms: float | None


def learn(world: World, most_calls: int = MOST_CALLS, *, blind: bool = False) -> Learned:
    """Play a world as the learner does, until the horizon, or as the ``blind`` one does."""
    if world.configured is not None:
        best = best_schedule(as_configured(world), most_calls)
        return Learned(best, len(best.times_ms), 0)
    return _Learner(world, most_calls, blind=blind).play()


class _Learner:
    def __init__(self, world: World, most_calls: int, *, blind: bool) -> None:
        self._world, self._most_calls, self._blind = world, most_calls, blind
        self._admission, self._rtt_ms = Admission(world, 0), 2 * world.one_way_ms
        self._signs = Signs(world, self._admission, 0)
        self._chance = random.Random(f"outages/{world.seed}")
        self._binding: Axis = binding_axis(world)
        limit = next(limit for limit in world.limits if limit.axis == self._binding)
        self._limit = limit
        largest = self._largest()
        self._belief: Belief | Forms = (
            Forms(world, limit, largest, _prior)
            if blind
            else Belief(limit, largest, _prior(world, limit), world.steps, world.seed)
        )
        self._pending: list[tuple[float, int, _Pending]] = []  # a heap, by when they are heard
        self._numbers = count()
        self._failures: list[float] = []  # when failures of an outage are heard
        self._ends: list[tuple[float, float, int]] = []
        self._first_ms = NEVER if world.signals.on_success else None  # when the first answer is back
        self._blocked_ms, self._down, self._named = 0.0, False, 0.0
        self._most, self._fits = float(MOST_AT_ONCE), 0  # bounds on how many calls fit at once
        self._told = world.signals.view in ("none", "other")
        self._last_ms = 0.0
        self._calls = self._refused = self._peak = 0
        self._times: list[float] = []

    def play(self) -> Learned:
        now_ms, ordinal = 0.0, 0
        while len(self._times) < self._most_calls:
            fate = draw(self._world, ordinal)
            event_ms = self._next_event_ms(now_ms)
            if event_ms > max(now_ms, self._blocked_ms):
                at_ms, risky = self._next(fate, now_ms)
            else:
                at_ms, risky = NEVER, False
            if min(at_ms, event_ms) > self._world.horizon_ms:
                break
            if event_ms <= at_ms:
                now_ms = max(now_ms, event_ms)
                self._catch_up(now_ms)
                continue
            now_ms = at_ms
            ordinal += self._send(fate, risky, now_ms)
        return Learned(Schedule(tuple(self._times), self._peak), self._calls, self._refused)

    def _next(self, fate: Draw, now_ms: float) -> tuple[float, bool]:
        """When the next call is sent as things look now, and whether that is at a risk."""
        at_ms = max(now_ms, self._blocked_ms)
        if self._failures or (self._down and self._pending):
            return NEVER, False  # one call at a time looks whether an outage has ended
        taken = self._admission.charges(fate.output_tokens).taken
        at_ms = max(at_ms, self._others_ms(taken, at_ms))
        at_once, risky_at_once = self._room()
        if not at_once and not risky_at_once:
            return NEVER, False
        sure_ms, safe_ms, likely_ms = self._belief.times_ms(taken[self._binding], at_ms, (SURE, SAFE, RISK))
        few = len(self._pending) <= self._most_unheard()
        if at_once and (safe_ms if few else sure_ms) <= at_ms:
            return at_ms, False
        if not few:
            return (sure_ms if at_once else NEVER), False
        if not self._starts and any(pending.risky for _, _, pending in self._pending):
            return (safe_ms, False) if at_once else (NEVER, False)
        if self._pays(likely_ms, safe_ms) or not at_once:
            return likely_ms, True
        return safe_ms, False

    @property
    def _starts(self) -> bool:
        """Whether a blind learner is in slow start: then many calls at a time are at a risk."""
        return self._blind and not self._refused

    def _most_unheard(self) -> float:
        """How many calls may be on their way of which nothing is heard."""
        few = UNHEARD * len(self._times)
        if not self._blind:
            return few
        if self._starts:
            return max(FIRST_CALLS, len(self._times) - len(self._pending))
        lately_ms = self._last_ms - LATELY * MS_PER_S * self._world.latency.median_s
        return max(few, PACED * (len(self._times) - bisect_right(self._times, lately_ms)))

    def _pays(self, likely_ms: float, safe_ms: float) -> bool:
        """Whether a risky call gains more time than the wait that a 429 names costs."""
        gain = (safe_ms - likely_ms) / max(1.0, safe_ms - self._last_ms) if safe_ms < NEVER else 1.0
        left_ms = max(0.0, self._world.horizon_ms - likely_ms)
        return gain > WORTH and RISK * gain * left_ms > (1 - RISK) * self._named

    def _room(self) -> tuple[bool, bool]:
        """Whether one more call surely fits at once, and whether it likely does."""
        if self._world.most_at_once is None:
            return True, True
        refused = sum(pending.axis is not None for _, _, pending in self._pending)
        at_once = self._admission.in_flight + refused
        if at_once < self._fits:
            return True, True
        left = math.log(self._most) - math.log(max(1, self._fits))
        share = (math.log(self._most) - math.log(at_once + 1)) / left if left > 0 else 0.0
        return share >= SAFE, share >= RISK

    def _others_ms(self, taken: dict[Axis, float], at_ms: float) -> float:
        """From when on the other axes admit it, whose limits are known."""
        self._admission.advance(at_ms)
        gates = self._admission.gates.items()
        found = [g.earliest_ms(taken[axis], at_ms) for axis, g in gates if axis != self._binding]
        latest = max(found, default=at_ms)
        return latest + TICK_MS if latest > at_ms else latest

    def _next_event_ms(self, now_ms: float) -> float:
        """When something becomes known, a call ends, or a limit moves."""
        found = [step.at_s * MS_PER_S for step in self._world.steps if step.at_s * MS_PER_S > now_ms][:1]
        found += [self._pending[0][0]] if self._pending else []
        found += self._failures[:1]
        found += [self._ends[0][0]] if self._ends else []
        if self._first_ms is not None:
            found.append(self._first_ms)
        return min(found, default=NEVER)

    def _send(self, fate: Draw, risky: bool, now_ms: float) -> int:
        """Send a call, which arrives now. Returns how many calls it was that were admitted."""
        self._catch_up(now_ms)
        outage = self._outage(now_ms)
        if outage is not None:
            self._fail(outage, now_ms)
            return 0
        self._calls, self._last_ms = self._calls + 1, now_ms
        taken = self._admission.charges(fate.output_tokens).taken
        axis, in_flight = self._admission.rejects(taken, now_ms), self._admission.in_flight
        call = None
        if axis is None or axis == self._binding:
            call = self._belief.sent(taken[self._binding], now_ms)
        known_ms = now_ms + self._rtt_ms
        if axis is not None:
            self._refused += 1
            shown_ms = self._shown_ms(axis, taken, now_ms)
            self._admission.count_refused(now_ms)
            if self._world.counts_refused and self._binding == "requests":
                self._belief.charged(1.0, now_ms)
            self._await(_Pending(known_ms, axis, call, in_flight, risky, shown_ms))
            return 0
        self._admission.admit(taken, now_ms)
        self._signs.note_admitted(taken, round(now_ms))
        latency_ms = self._admission.latency_ms(fate)
        heapq.heappush(self._ends, (now_ms + latency_ms, now_ms, fate.output_tokens))
        if self._first_ms == NEVER:
            self._first_ms = now_ms + latency_ms + self._rtt_ms
        known_ms += latency_ms if self._blind else 0.0
        self._await(_Pending(known_ms, None, call, in_flight, risky, None))
        self._peak = max(self._peak, self._admission.in_flight)
        if not fate.faulty:
            self._times.append(now_ms)
        return 1

    def _await(self, pending: _Pending) -> None:
        heapq.heappush(self._pending, (pending.known_ms, next(self._numbers), pending))

    def _outage(self, now_ms: float) -> Outage | None:
        """The outage in which a call that arrives now fails."""
        for outage in self._world.outages:
            if outage.at_s * MS_PER_S <= now_ms < (outage.at_s + outage.lasts_s) * MS_PER_S:
                return outage if outage.share >= 1 or self._chance.random() < outage.share else None
        return None

    def _fail(self, outage: Outage, now_ms: float) -> None:
        """A call into an outage. The first that fails shows it, and then one call at a time is sent."""
        median_ms = self._world.latency.median_s * MS_PER_S
        takes_ms = {
            "refused": 0.0,
            "hang": min(TIMEOUT_MS, LONG * median_ms),
            "malformed": median_ms,
        }.get(outage.form, float(QUICK_MS))
        heapq.heappush(self._failures, now_ms + takes_ms + self._rtt_ms)

    def _catch_up(self, now_ms: float) -> None:
        """Learn all that is known by now."""
        while self._ends and self._ends[0][0] <= now_ms:
            self._end(*heapq.heappop(self._ends))
        if self._first_ms is not None and self._first_ms <= now_ms:
            self._first_ms = None
            self._read_headers()
        while self._failures and self._failures[0] <= now_ms:
            self._down = True
            waits_s = [outage.wait_s or 0.0 for outage in self._world.outages]
            half = all(outage.share < 1 for outage in self._world.outages)
            again_ms = heapq.heappop(self._failures) + max(0 if half else LOOK_MS, MS_PER_S * max(waits_s))
            self._blocked_ms = max(self._blocked_ms, again_ms)
        while self._pending and self._pending[0][0] <= now_ms:
            self._hear(heapq.heappop(self._pending)[2])

    def _end(self, end_ms: float, taken_ms: float, output_tokens: int) -> None:
        returned = self._admission.charges(output_tokens).returned
        self._admission.release(returned, taken_ms, end_ms)
        if returned and self._limit.axis in returned:
            self._belief.refunded(returned[self._binding], taken_ms, end_ms)

    def _read_headers(self) -> None:
        """Headers that report the true limit make it known; only true ones say how deep a bucket is."""
        if self._told:
            return
        self._told = True
        exact = self._world.signals.view == "true" or self._limit.shape != "bucket"
        self._belief.known(self._limit.per_minute, self._limit.span_s if exact else None)

    def _hear(self, pending: _Pending) -> None:
        self._down = False
        if pending.axis is None:
            self._fits = max(self._fits, pending.in_flight + 1)
        elif pending.axis == "concurrency":
            self._most = min(self._most, float(pending.in_flight))
        if pending.axis is not None:
            self._block(pending)
            self._read_headers()
        call = pending.call
        if call is not None:
            call.admitted = pending.axis is None
            self._belief.heard(call)

    def _block(self, pending: _Pending) -> None:
        """Wait for as long as the answer says. An honest wait says more of the limit that binds."""
        shown_ms, call = pending.shown_ms, pending.call
        if shown_ms is None:
            return
        self._named = 0.7 * self._named + 0.3 * shown_ms if self._named else shown_ms
        self._blocked_ms = max(self._blocked_ms, pending.known_ms + shown_ms)
        signals = self._world.signals
        honest = signals.wait_form != "none" and signals.wait_error == 1.0 and signals.style != "azure"
        if (
            honest
            and call is not None
            and len(self._admission.gates) == 1
            and self._world.charge != "refunded"
        ):
            call.wait_ms = shown_ms
            call.off_ms = MS_PER_S if signals.wait_form in ("seconds", "date") else 0.0

    def _shown_ms(self, axis: Axis, taken: dict[Axis, float], now_ms: float) -> float | None:
        """The wait that a worker of Fairlane reads from a refusal."""
        median_ms = self._world.latency.median_s * MS_PER_S
        wait_ms: float | None = median_ms
        if axis != "concurrency":
            wait_ms = self._admission.wait_ms(taken, now_ms)
            if self._world.charge == "refunded" and wait_ms is not None and self._admission.in_flight:
                wait_ms = min(wait_ms, median_ms)
        return self._signs.of_refusal(axis, wait_ms, round(now_ms))[1]

    def _largest(self) -> float:
        work, world = self._world.work, self._world
        return amounts(work.input_tokens, world.largest_output, world.output_factor)[self._binding]


def binding_axis(world: World) -> Axis:
    """The axis whose limit binds: the one that lets the fewest calls through within the horizon."""
    work, outputs = world.work, world.work.output_tokens
    if world.charge == "reserved":
        outputs = float(world.largest_output)
    mean = amounts(work.input_tokens, outputs, world.output_factor)
    minutes = world.horizon_s / 60
    return min(world.limits, key=lambda limit: limit.per_minute * minutes / mean[limit.axis]).axis


def _prior(world: World, limit: AxisLimit) -> Prior:
    """The generator's own ranges, in amounts of the axis; of long windows, the horizon uses a part."""
    work, outputs = world.work, world.work.output_tokens
    if world.charge == "reserved":
        outputs = float(world.largest_output)
    one = amounts(work.input_tokens, outputs, world.output_factor)[limit.axis]
    part = 1.0
    if limit.shape != "bucket" and limit.span_s > world.horizon_s:
        part = world.horizon_s / limit.span_s / 2
    return Prior((LEAST_PER_MINUTE * one * part, 4 * MOST_PER_MINUTE * one * part), (SHALLOWEST_S, DEEPEST_S))
