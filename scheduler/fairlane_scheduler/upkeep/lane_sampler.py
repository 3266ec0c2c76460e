"""Writes samples of lanes for charts. A lane whose readings have not changed gets no new sample."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from fairlane.store.write.lanes.lane_history import FINE, STEPS, Activity, History, Reading, Step
from fairlane.store.write.lanes.lane_view import LaneView
from fairlane.store.write.lanes.lanes import Lanes
from fairlane_scheduler.state.server_time import Moment

UNUSED = Reading(0)


class Series:
    """Selects the readings to write at one resolution: those that changed, and the last one before each."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self._written: dict[str, Reading] = {}
        self._looked_ms: int | None = None

    def due(self, now_ms: int) -> bool:
        """Whether the next sample is due."""
        every_ms = self.step.every_ms
        return self._looked_ms is None or now_ms // every_ms != self._looked_ms // every_ms

    def take(self, readings: Mapping[str, Reading], now_ms: int) -> Iterator[tuple[Step, str, Reading]]:
        """The readings to write; ``readings`` has every lane that was ever used."""
        for lane, reading in readings.items():
            if self._looked_ms is not None:
                last = self._written.get(lane, UNUSED)
                if last[1:] == reading[1:]:
                    continue
                if last.at_ms < self._looked_ms:
                    yield self.step, lane, last._replace(at_ms=self._looked_ms)
            self._written[lane] = reading._replace(at_ms=now_ms)
            yield self.step, lane, self._written[lane]
        self._looked_ms = now_ms


class LaneSampler:
    """Takes samples every five seconds. A sample costs two round trips if all lanes are idle, else four."""

    def __init__(self, lanes: Lanes, history: History, waiting: Callable[[str], int]) -> None:
        self._lanes, self._history, self._waiting = lanes, history, waiting
        self.forget_all()

    def forget_all(self) -> None:
        """Forget the last samples: another scheduler may have led and written others."""
        self._due_ms = 0
        self._series = tuple(Series(step) for step in STEPS)
        self._seen: dict[str, tuple[Activity, int]] = {}
        self._readings: dict[str, Reading] = {}

    def forget(self, lane: str) -> None:
        """Write no more samples of a lane."""
        self._readings.pop(lane, None)

    def tick(self, moment: Moment, names: Callable[[], Sequence[str]]) -> None:
        """Write samples of all lanes if they are due."""
        if moment.monotonic_ms < self._due_ms:
            return
        self._due_ms = moment.monotonic_ms + FINE.every_ms
        self._read(names(), moment)
        now_ms = moment.server_ms
        due = [series for series in self._series if series.due(now_ms)]
        self._history.append(each for series in due for each in series.take(self._readings, now_ms))

    def _read(self, lanes: Sequence[str], moment: Moment) -> None:
        seen = {
            lane: (activity, self._waiting(lane)) for lane, activity in self._history.activity(lanes).items()
        }
        changed = [lane for lane, current in seen.items() if self._seen.get(lane) != current]
        for view in self._lanes.views(changed, moment.argument):
            self._readings[view.lane] = _reading(view, seen[view.lane][1], moment.server_ms)
        self._seen = seen


def _reading(view: LaneView, waiting: int, now_ms: int) -> Reading:
    requests = view.axes["requests"]
    return Reading(
        at_ms=now_ms,
        limit_per_minute=None if requests.allowed is None else round(requests.allowed, 2),
        source=requests.source,
        granted=view.granted,
        finished=view.succeeded + view.limited + view.failed,
        refused=view.limited,
        in_flight=view.in_flight,
        window=view.places.most,
        waiting=waiting,
    )
