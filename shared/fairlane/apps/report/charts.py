"""Charts as SVG in a page: no script, colours by the page's style, each bar with its numbers as a title."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement, tostring

from markupsafe import Markup

from fairlane.apps.report.activity import LaneActivity, Point
from fairlane.apps.report.binning import Bin, nice_steps
from fairlane.core.terminal_text import visible

WIDTH, HEIGHT = 640, 220
LEFT, RIGHT, TOP, BOTTOM = 48, 12, 12, 30
_INNER_WIDTH, _INNER_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
GAP = 2
TICKS = 6


class Mark(NamedTuple):
    """A vertical line at a value of a histogram's axis."""

    value: float
    label: str


def histogram(
    bins: Sequence[Bin],
    title: str,
    in_words: Callable[[float], str],
    marks: Sequence[Mark] = (),
) -> Markup:
    """Counts by bin, in bars of equal width. ``in_words`` writes a value; ``marks`` are shown if bins are
    ranges.
    """
    svg = _svg(title)
    most = max((each.held for each in bins), default=0)
    top = _count_axis(svg, most)
    width = _INNER_WIDTH / max(1, len(bins))
    if all(each.low == each.high for each in bins):
        width = min(width, 96)
    start = LEFT + (_INNER_WIDTH - width * len(bins)) / 2
    every = max(1, -(-len(bins) // TICKS)) if len(bins) > TICKS + 6 else 1
    for number, each in enumerate(bins):
        height = _INNER_HEIGHT * each.held / top
        x, y = start + number * width, TOP + _INNER_HEIGHT - height
        bar = _add(svg, "rect", "bar", x=x + GAP / 2, y=y, width=max(1.0, width - GAP), height=height, rx=2)
        span = in_words(each.low)
        if each.high != each.low:
            span = f"{span} to {in_words(each.high)}"
        SubElement(bar, "title").text = f"{span}: {each.held:,}"
        if each.low == each.high:
            _text(svg, x + width / 2, HEIGHT - 10, in_words(each.low), "tick", anchor="middle")
        elif number % every == 0:
            _text(svg, x, HEIGHT - 10, in_words(each.low), "tick", anchor="middle" if number else "start")
    if bins and bins[-1].high != bins[-1].low:
        for mark in marks:
            _mark(svg, bins, mark, width)
    return _markup(svg)


def throughput(activity: LaneActivity, in_words: Callable[[int], str]) -> Markup:
    """Calls a minute as an area, the limit as a line, refusals as bars, over the time of a run."""
    points = activity.points
    svg = _svg(f"Calls a minute on {activity.lane}, and its limit")
    limits = [point.limit for point in points if point.limit is not None]
    reached = max((point.admitted for point in points), default=0)
    # A limit far above the rate would flatten the chart.
    shown = [limit for limit in limits if limit <= 4 * reached] or limits[:0]
    top = _count_axis(svg, max([reached, *shown, 1]))
    first_ms = min(activity.from_ms, points[0].at_ms)
    length_ms = max(1, max(activity.upto_ms, points[-1].at_ms) - first_ms)

    def x(at_ms: float) -> float:
        return LEFT + _INNER_WIDTH * (at_ms - first_ms) / length_ms

    def y(rate: float) -> float:
        return TOP + _INNER_HEIGHT * (1 - min(rate, top) / top)

    _time_axis(svg, first_ms, length_ms, x, in_words)
    _area(svg, points, x, y)
    for before, point in pairwise(points):
        if point.refused:
            left, wide = x(before.at_ms), max(1.5, x(point.at_ms) - x(before.at_ms))
            high = TOP + _INNER_HEIGHT - y(point.refused)
            bar = _add(svg, "rect", "refused", x=left, y=y(point.refused), width=wide, height=max(1.5, high))
            SubElement(bar, "title").text = f"{point.refused:,.0f} answers of 429 a minute"
    if shown:
        _limit(svg, points, x, y)
    return _markup(svg)


def _area(
    svg: Element, points: Sequence[Point], x: Callable[[float], float], y: Callable[[float], float]
) -> None:
    base = TOP + _INNER_HEIGHT
    line = [(x(point.at_ms), y(point.admitted)) for point in points]
    outline = " ".join(f"{left:.1f},{top:.1f}" for left, top in line)
    _add(svg, "polygon", "area", points=f"{line[0][0]:.1f},{base} {outline} {line[-1][0]:.1f},{base}")
    _add(svg, "polyline", "line", points=outline)


def _limit(
    svg: Element, points: Sequence[Point], x: Callable[[float], float], y: Callable[[float], float]
) -> None:
    """Steps, broken where there was no limit."""
    path, drawing = "", False
    for point in points:
        if point.limit is None:
            drawing = False
            continue
        at = f"{x(point.at_ms):.1f}"
        path += f"H{at}V{y(point.limit):.1f}" if drawing else f"M{at},{y(point.limit):.1f}"
        drawing = True
    _add(svg, "path", "limit", d=path)


def _count_axis(svg: Element, most: float) -> float:
    steps = nice_steps(most)
    for step in steps:
        y = TOP + _INNER_HEIGHT * (1 - step / steps[-1])
        _add(svg, "line", "grid", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y)
        _text(svg, LEFT - 6, y + 4, f"{step:,.4g}" if step < 10_000 else f"{step:,.0f}", "tick", anchor="end")
    return steps[-1]


def _time_axis(
    svg: Element,
    first_ms: float,
    length_ms: float,
    x: Callable[[float], float],
    in_words: Callable[[int], str],
) -> None:
    for number in range(TICKS):
        at_ms = round(length_ms * number / (TICKS - 1))
        anchor = "start" if number == 0 else "end" if number == TICKS - 1 else "middle"
        _text(svg, x(first_ms + at_ms), HEIGHT - 10, in_words(at_ms), "tick", anchor=anchor)


def _mark(svg: Element, bins: Sequence[Bin], mark: Mark, width: float) -> None:
    for number, each in enumerate(bins):
        if each.low <= mark.value <= each.high:
            within = (mark.value - each.low) / (each.high - each.low) if each.high > each.low else 0.5
            x = LEFT + (number + within) * width
            line = _add(svg, "line", "mark", x1=x, x2=x, y1=TOP, y2=TOP + _INNER_HEIGHT)
            SubElement(line, "title").text = mark.label
            at, anchor = (x - 4, "end") if x > WIDTH - 90 else (x + 4, "start")
            _text(svg, at, TOP + 10, mark.label, "note", anchor)
            return


def _svg(title: str) -> Element:
    svg = Element("svg", {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "role": "img", "class": "chart"})
    svg.set("aria-label", title)
    SubElement(svg, "title").text = title
    return svg


def _add(parent: Element, tag: str, kind: str, **attributes: float | str) -> Element:
    texts = {
        name: f"{value:.1f}" if isinstance(value, float) else str(value) for name, value in attributes.items()
    }
    return SubElement(parent, tag, {"class": kind, **texts})


def _text(parent: Element, x: float, y: float, words: str, kind: str, anchor: str = "start") -> None:
    found = _add(parent, "text", kind, x=float(x), y=float(y))
    found.set("text-anchor", anchor)
    found.text = words


def _markup(svg: Element) -> Markup:
    """Serialise an element: its text is escaped, and hidden characters are made visible."""
    return Markup(visible(tostring(svg, encoding="unicode")))  # noqa: S704
