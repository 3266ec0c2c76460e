"""A picture of a rehearsal: admitted calls, the true limit, and the lane's learned rate."""

from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path

from fairlane.lab.rehearsal.figures.true_limits import counted_tokens
from fairlane.lab.rehearsal.recording import Lane, Recording
from fairlane.lab.rehearsal.virtual.simulated_provider import ADMITTED, OUTAGE
from tests.benchmarks.control.figures import rate_at

BIN_S = 10.0
MOST_MARKS = 2000
SIZE_INCHES, DOTS_PER_INCH = (10.0, 4.0), 90


@dataclass(frozen=True, slots=True)
class Curves:
    """The curves of a lane: minutes from the start, and calls a minute at each."""

    title: str
    minutes: tuple[float, ...]
    admitted: tuple[float, ...]
    allowed: tuple[float, ...]
    pace_minutes: tuple[float, ...]
    paces: tuple[float, ...]
    refusals: tuple[float, ...]


def curves(recording: Recording, lane: Lane, about: str) -> Curves:
    """The curves of one lane; ``about`` is in their title."""
    scenario, began_ms = recording.scenario, recording.began_ms
    model = scenario.models[lane.model]
    ours = [a for a in lane.log.arrivals if a.verdict == ADMITTED]
    times = [(a.at_ms - began_ms) / 1000 for a in ours]
    tokens = counted_tokens(model, ours) / max(1, len(ours))
    edges = [n * BIN_S for n in range(int((recording.ended_ms - began_ms) / 1000 / BIN_S) + 1)]
    counts = [bisect_left(times, edge + BIN_S) - bisect_left(times, edge) for edge in edges[:-1]]
    allowed = [rate_at(model, edge, tokens) for edge in edges[:-1]]
    refused = [
        (a.at_ms - began_ms) / 60_000 for a in lane.log.arrivals if a.verdict not in (ADMITTED, OUTAGE)
    ]
    refused += [(at_ms - began_ms) / 60_000 for at_ms in lane.log.sheds]
    known = [(at_ms, pace) for at_ms, pace in lane.paces if pace is not None]
    return Curves(
        title=f"{scenario.name}, {scenario.workers} workers, seed {scenario.seed}: {about}",
        minutes=tuple(edge / 60 for edge in edges[:-1]),
        admitted=tuple(count * 60 / BIN_S for count in counts),
        allowed=tuple(allowed),
        pace_minutes=tuple((at_ms - began_ms) / 60_000 for at_ms, _ in known),
        paces=tuple(pace for _, pace in known),
        refusals=tuple(sorted(refused)[:: max(1, len(refused) // MOST_MARKS)]),
    )


def draw(course: Curves, path: Path) -> None:
    """Write a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE_INCHES, dpi=DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    finite = [rate for rate in course.allowed if rate != float("inf")]
    top = 1.5 * max([*finite, 1.0]) if finite else 1.1 * max([*course.admitted, 1.0])
    axes.plot(course.minutes, course.admitted, color="#1f6fb4", linewidth=0.9, label="admitted, over 10 s")
    axes.step(course.minutes, course.allowed, where="post", color="#222222", linewidth=1.4, label="allowed")
    if course.paces:
        axes.plot(course.pace_minutes, course.paces, color="#e08a00", linewidth=1.1, label="pace learned")
    if course.refusals:
        marks = [top * 0.02] * len(course.refusals)
        axes.plot(course.refusals, marks, "|", color="#c22222", markersize=7, label="429")
    axes.set_title(course.title, fontsize=9, loc="left")
    axes.set_xlabel("minutes")
    axes.set_ylabel("calls a minute")
    axes.set_ylim(0, top)
    axes.set_xlim(left=0)
    axes.grid(alpha=0.25)
    axes.legend(loc="lower right", fontsize=8, ncols=4)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})
