"""A generated provider refuses, fails and reports as its world says."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from fairlane.core.clock import ManualClock
from fairlane.lab.rehearsal.virtual.event_queue import EventQueue
from fairlane.model.job import Attempt
from fairlane.model.outcome import (
    InvalidResponse,
    NetworkFailure,
    Outcome,
    Overloaded,
    RateLimited,
    Success,
    TimedOut,
)
from tests.benchmarks.zoo.generator import SMALL, generate
from tests.benchmarks.zoo.measure import measure, quantile
from tests.benchmarks.zoo.peer_client import play_peer
from tests.benchmarks.zoo.picture import svg
from tests.benchmarks.zoo.provider import ADMITTED, TIMEOUT_MS, GeneratedProvider
from tests.benchmarks.zoo.report import page, table, worst
from tests.benchmarks.zoo.world import AxisLimit, Outage, OutageForm, Signals, Step, Style, View, World
from tests.support.plain_world import plain_world

BEGAN_MS = 1_700_000_000_000


class Caller:
    def __init__(self, chosen: World) -> None:
        self.clock = ManualClock(BEGAN_MS)
        self.events = EventQueue(self.clock)
        self.provider = GeneratedProvider(chosen, self.events)
        self.ends: list[tuple[int, Outcome]] = []

    def call(self, times: int = 1) -> None:
        for _ in range(times):
            self.provider.serve(
                Attempt("r", "zoo", 0, 1, "sim:model"),
                lambda outcome: self.ends.append((self.clock.now_ms() - BEGAN_MS, outcome)),
            )

    def pass_time(self, until_ms: int) -> None:
        while (next_ms := self.events.next_ms) is not None and next_ms <= BEGAN_MS + until_ms:
            self.clock.advance((next_ms - self.clock.now_ms()) / 1000)
            self.events.run_due()
        self.clock.advance((BEGAN_MS + until_ms - self.clock.now_ms()) / 1000)

    def verdicts(self) -> list[str]:
        return [arrival.verdict for arrival in self.provider.arrivals]


def test_calls_beyond_the_bucket_are_refused_with_an_exact_wait() -> None:
    caller = Caller(plain_world(signals=Signals("protocol", "none", wait_form="milliseconds")))
    caller.call(6)
    caller.pass_time(50)
    assert caller.verdicts() == [ADMITTED] * 5 + ["requests"]
    refused = [end for _, end in caller.ends if isinstance(end, RateLimited)]
    assert [end.retry_after_ms for end in refused] == [pytest.approx(100, abs=5)]


@pytest.mark.parametrize(("error", "shown_ms"), [(10.0, 1000), (0.1, 10)])
def test_a_wrong_wait_is_wrong_by_its_factor(error: float, shown_ms: int) -> None:
    signals = Signals("protocol", "none", wait_form="milliseconds", wait_error=error)
    caller = Caller(plain_world(signals=signals))
    caller.call(6)
    caller.pass_time(50)
    (refused,) = [end for _, end in caller.ends if isinstance(end, RateLimited)]
    assert refused.retry_after_ms == pytest.approx(shown_ms, rel=0.1)


@pytest.mark.parametrize(("counts", "admitted"), [(False, 6), (True, 5)])
def test_refused_calls_count_where_the_world_says_so(counts: bool, admitted: int) -> None:
    caller = Caller(plain_world(counts_refused=counts))
    caller.call(8)
    caller.pass_time(150)
    caller.call(1)
    caller.pass_time(300)
    assert caller.verdicts().count(ADMITTED) == admitted


@pytest.mark.parametrize(("status", "kind"), [(429, RateLimited), (503, Overloaded)])
def test_calls_at_once_are_limited(status: int, kind: type) -> None:
    caller = Caller(plain_world(most_at_once=2, at_once_status=status))
    caller.call(3)
    caller.pass_time(1000)
    assert sorted(caller.verdicts()) == [ADMITTED, ADMITTED, "concurrency"]
    assert [end for _, end in caller.ends if isinstance(end, kind)]


@pytest.mark.parametrize(
    ("form", "kind", "least_ms"),
    [
        ("503", Overloaded, 0),
        ("529", Overloaded, 0),
        ("500", Overloaded, 0),
        ("refused", NetworkFailure, 0),
        ("hang", TimedOut, TIMEOUT_MS),
        ("malformed", InvalidResponse, 0),
    ],
)
def test_an_outage_fails_in_its_form_and_ends(form: OutageForm, kind: type, least_ms: int) -> None:
    caller = Caller(plain_world(outages=(Outage(0.0, 5.0, form),)))
    caller.call(2)
    caller.pass_time(5_500)
    caller.call(1)
    caller.pass_time(100_000)
    failures = [(at_ms, end) for at_ms, end in caller.ends if isinstance(end, kind)]
    assert len(failures) == 2
    assert all(at_ms >= least_ms for at_ms, _ in failures)
    assert caller.verdicts() == [form, form, ADMITTED]


def test_a_step_changes_the_limit_and_others_take_their_share() -> None:
    steps = (Step(1.0, 0.5, 0.0), Step(3.0, 1.0, 0.8))
    caller = Caller(plain_world(steps=steps))
    counts = []
    for second in range(6):
        before = caller.verdicts().count(ADMITTED)
        for tenth in range(50):
            caller.call()
            caller.pass_time(second * 1000 + (tenth + 1) * 20)
        counts.append(caller.verdicts().count(ADMITTED) - before)
    assert counts[1:3] == [pytest.approx(5, abs=1)] * 2
    assert counts[4:] == [pytest.approx(2, abs=1)] * 2


STYLES: tuple[Style, ...] = (
    "protocol", "anthropic", "azure", "together", "mistral", "cerebras", "xai", "ietf",
)  # fmt: skip


@pytest.mark.parametrize("style", STYLES)
def test_true_headers_of_every_format_are_read_as_workers_read_them(style: Style) -> None:
    limits = (AxisLimit("requests", 600, "bucket", 60.0), AxisLimit("tokens", 600_000, "bucket", 60.0))
    caller = Caller(plain_world(limits=limits, signals=Signals(style, "true")))
    caller.call(1)
    caller.pass_time(1000)
    (_, success) = caller.ends[0]
    assert isinstance(success, Success)
    assert success.hints is not None
    hint = success.hints.axes["unnamed" if style == "ietf" else "requests"]
    assert hint.limit == pytest.approx(600, rel=0.01)
    assert hint.remaining is not None


@pytest.mark.parametrize("view", ["none", "other"])
def test_other_views_say_nothing_of_the_axis_that_binds(view: View) -> None:
    caller = Caller(plain_world(signals=Signals("protocol", view)))
    caller.call(6)
    caller.pass_time(1000)
    for _, end in caller.ends:
        assert end.hints is None or "requests" not in end.hints.axes


def test_a_stale_view_repeats_old_figures() -> None:
    limits = (AxisLimit("requests", 60, "bucket", 10.0),)
    caller = Caller(plain_world(limits=limits, signals=Signals("protocol", "stale", stale_s=60.0)))
    for second in range(5):
        caller.call(1)
        caller.pass_time((second + 1) * 1000)
    seen = {end.hints.axes["requests"].remaining for _, end in caller.ends if end.hints is not None}
    assert len(seen) == 1


def test_headers_come_on_refusals_alone_where_the_world_says_so() -> None:
    caller = Caller(plain_world(signals=Signals("protocol", "true", on_success=False)))
    caller.call(6)
    caller.pass_time(1000)
    assert all((end.hints is not None) == isinstance(end, RateLimited) for _, end in caller.ends)


def test_pictures_and_reports_show_every_world() -> None:
    figures = []
    for seed in range(6):
        course = play_peer(generate(seed, SMALL), "pacing")
        drawn = ElementTree.fromstring(svg(course))  # noqa: S314 - our own
        assert drawn.tag.endswith("svg")
        figures.append(replace(measure(course, "fairlane"), player="fairlane"))
    assert {f.seed for f in worst(figures)} == set(range(6))
    text = page(figures, "six")
    assert all(f"seed-{seed}.svg" in text for seed in range(6))
    assert table(figures).row_count >= 1


def test_quantiles_are_of_the_nearest_rank() -> None:
    values = [float(n) for n in range(101)]
    assert (quantile(values, 0.5), quantile(values, 0.05), quantile([], 0.5)) == (50, 5, 0)
