"""Draws a played world as an SVG: admitted calls, the oracle's calls, the lane's learned rate, refusals."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from html import escape
from pathlib import Path

from tests.benchmarks.zoo.measure import REFUSED
from tests.benchmarks.zoo.playing import Course
from tests.benchmarks.zoo.provider import ADMITTED

WIDTH, HEIGHT = 900, 320
LEFT, RIGHT, TOP, BOTTOM = 60, 15, 44, 34
BINS = 80
MOST_MARKS = 400
INK, OURS, BEST, PACE, WRONG, SHADE = "#222222", "#1f6fb4", "#222222", "#e08a00", "#c22222", "#eeeeee"


def draw(course: Course, path: Path) -> None:
    """Write the picture of a course. The same course always gives the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(svg(course), encoding="utf-8")


def svg(course: Course) -> str:
    """The SVG: calls a minute (vertical) over seconds (horizontal)."""
    world, span_ms = course.world, course.world.horizon_ms
    ours = [a.at_ms for a in course.arrivals if a.verdict == ADMITTED and a.at_ms <= span_ms]
    refused = [a.at_ms for a in course.arrivals if a.verdict in REFUSED and a.at_ms <= span_ms]
    admitted, best = _rates(ours, span_ms), _rates(course.best.times_ms, span_ms)
    top = 1.2 * max([*admitted, *sorted(best)[: max(1, round(BINS * 0.95))], 1.0])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        *_title(f"seed {world.seed}: " + "; ".join(world.traits)),
    ]
    for outage in world.outages:
        begins, ends = outage.at_s * 1000 / span_ms, (outage.at_s + outage.lasts_s) * 1000 / span_ms
        x, width = _x(begins), _x(min(1.0, ends)) - _x(begins)
        parts.append(
            f'<rect x="{x:.1f}" y="{TOP}" width="{width:.1f}" height="{_y(0) - TOP:.1f}" fill="{SHADE}"/>'
        )
    parts += _axes(span_ms, top)
    parts.append(_steps(best, top, BEST, 1.6))
    parts.append(_steps(admitted, top, OURS, 1.2))
    paces = [(at / span_ms, min(pace, top)) for at, pace in course.paces if at <= span_ms]
    if paces:
        points = " ".join(f"{_x(share):.1f},{_y(pace / top):.1f}" for share, pace in paces)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{PACE}" stroke-width="1.2"/>')
    for at_ms in refused[:: max(1, len(refused) // MOST_MARKS)]:
        x = _x(at_ms / span_ms)
        parts.append(f'<path d="M{x:.1f} {_y(0):.1f}v-9" stroke="{WRONG}" stroke-width="1"/>')
    parts += _legend([("oracle", BEST), ("admitted", OURS), ("pace learned", PACE), ("refused", WRONG)])
    return "\n".join([*parts, "</svg>", ""])


def _rates(times_ms: Sequence[float], span_ms: int) -> list[float]:
    """Calls a minute in each of the equal intervals that the picture shows."""
    width = span_ms / BINS
    edges = [bisect_left(times_ms, n * width) for n in range(BINS + 1)]
    edges[-1] = len(times_ms)
    return [(edges[n + 1] - edges[n]) * 60_000 / width for n in range(BINS)]


def _x(share: float) -> float:
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - min(1.0, share) * (HEIGHT - TOP - BOTTOM)


def _steps(rates: Sequence[float], top: float, colour: str, width: float) -> str:
    path = [f"M{_x(0):.1f} {_y(rates[0] / top):.1f}"]
    for number, rate in enumerate(rates):
        path.append(f"V{_y(rate / top):.1f}H{_x((number + 1) / len(rates)):.1f}")
    return f'<path d="{"".join(path)}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


def _title(text: str) -> list[str]:
    """The title, in two lines at most."""
    words, lines = text.split(" "), [""]
    for word in words:
        if len(lines[-1]) + len(word) > 125:
            lines.append("")
        lines[-1] += word + " "
    return [
        f'<text x="8" y="{16 + 15 * number}" font-size="12" fill="{INK}">{escape(line.strip())}</text>'
        for number, line in enumerate(lines[:2])
    ]


def _axes(span_ms: int, top: float) -> list[str]:
    parts = [f'<path d="M{LEFT} {TOP}V{_y(0):.1f}H{WIDTH - RIGHT}" fill="none" stroke="{INK}"/>']
    for number in range(5):
        share = number / 4
        parts.append(
            f'<text x="{LEFT - 6}" y="{_y(share) + 4:.1f}" font-size="11" text-anchor="end">'
            f"{share * top:.3g}</text>"
        )
        parts.append(
            f'<text x="{_x(share):.1f}" y="{HEIGHT - 18}" font-size="11" text-anchor="middle">'
            f"{share * span_ms / 1000:.3g} s</text>"
        )
    return parts


def _legend(entries: Sequence[tuple[str, str]]) -> list[str]:
    return [
        f'<text x="{LEFT + 120 * number}" y="{HEIGHT - 4}" font-size="11" fill="{colour}">— {name}</text>'
        for number, (name, colour) in enumerate(entries)
    ]
