"""Handles the keys of ``fairlane top``: panes, order, the selected line, and confirmation of changes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from fairlane.top.frame import KEYS, Shown
from fairlane.top.panes import LANES, PANES, RUNS, sorted_lines
from fairlane.top.reading import Snapshot

PAGE = 10
_NOTHING_TO_EXPLAIN = "choose a lane or a run: those can be explained"
_NOTHING_TO_PAUSE = "choose a lane or a run: those can be paused"


class Action(NamedTuple):
    """A command for a lane, or for a run ``TEAM/RUN``."""

    verb: Literal["explain", "pause", "resume"]
    kind: Literal["lane", "run"]
    target: str

    def __str__(self) -> str:
        verb = "let go on" if (self.verb, self.kind) == ("resume", "run") else self.verb
        return f"{verb} {self.kind} {self.target}"


@dataclass(slots=True)
class _Order:
    """The sort order of a pane's lines, and the name and place of the selected one."""

    column: int
    reverse: bool = False
    name: str | None = None
    place: int = 0


@dataclass(slots=True)
class Controls:
    """The state of the view. ``left``: the user quits. ``still``: updates are off. ``message`` is a status
    line, ``details`` an explanation or the help.
    """

    pane: int = 0
    left: bool = False
    still: bool = False
    message: str = ""
    details: Sequence[tuple[str, str]] = ()
    _asked: Action | None = None
    _orders: list[_Order] = field(default_factory=lambda: [_Order(pane.sort) for pane in PANES])

    def shown(self, snapshot: Snapshot) -> Shown:
        """The frame for a snapshot; the selected line stays selected while lines move."""
        order, pane = self._orders[self.pane], PANES[self.pane]
        lines = sorted_lines(pane, snapshot, order.column, reverse=order.reverse)
        names = [pane.name_of(line) for line in lines]
        if order.name in names:
            order.place = names.index(order.name)
        order.place = max(0, min(order.place, len(lines) - 1))
        order.name = names[order.place] if names else None
        question = f"{self._asked}? y: yes, any other key: no" if self._asked else ""
        return Shown(
            snapshot,
            self.pane,
            lines,
            order.place,
            order.column,
            order.reverse,
            message=question or self.message,
            urgent=self._asked is not None,
            details=self.details,
            still=self.still,
        )

    def press(self, key: str, snapshot: Snapshot) -> Action | None:
        """Handle a key; returns the action to execute, if any."""
        asked, self._asked, self.message = self._asked, None, ""
        if asked is not None:
            if key.lower() == "y":
                return asked
            self.message = "nothing was changed"
            return None
        if self.details and key != "q":
            self.details = ()
            if key in ("escape", "enter", "e", "h", "?"):
                return None
        self._move(key, snapshot)
        match key:
            case "q":
                self.left = True
            case "h" | "?":
                self.details = tuple(KEYS.items())
            case "space":
                self.still = not self.still
            case "e" | "enter":
                return self._explain(snapshot)
            case "p":
                self._ask(snapshot)
        return None

    def _move(self, key: str, snapshot: Snapshot) -> None:
        order, last = self._orders[self.pane], len(self.shown(snapshot).lines) - 1
        steps = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -PAGE, "page down": PAGE}
        ends = {"home": 0, "end": last}
        if key in steps or key in ends:
            order.place = max(0, min(last, ends.get(key, order.place + steps.get(key, 0))))
            order.name = None
        elif key in ("right", "s", "left"):
            order.column = (order.column + (-1 if key == "left" else 1)) % len(PANES[self.pane].columns)
        elif key == "r":
            order.reverse = not order.reverse
        elif key in ("tab", "back tab"):
            self.pane = (self.pane + (1 if key == "tab" else -1)) % len(PANES)
        elif key in [str(number + 1) for number in range(len(PANES))]:
            self.pane = int(key) - 1

    def _explain(self, snapshot: Snapshot) -> Action | None:
        line = self._chosen(snapshot)
        if line is None or PANES[self.pane] not in (LANES, RUNS):
            self.message = _NOTHING_TO_EXPLAIN
            return None
        return Action("explain", _kind(self.pane), PANES[self.pane].name_of(line))

    def _ask(self, snapshot: Snapshot) -> None:
        line, pane = self._chosen(snapshot), PANES[self.pane]
        if line is None or pane not in (LANES, RUNS):
            self.message = _NOTHING_TO_PAUSE
        elif pane is LANES:
            view = line.report.view
            shut = view.paused or view.parked is not None
            self._asked = Action("resume" if shut else "pause", "lane", view.lane)
        elif line.status.state.finished:
            self.message = f"run {line.status.run} is over"
        else:
            verb: Literal["pause", "resume"] = "resume" if line.status.paused else "pause"
            self._asked = Action(verb, "run", pane.name_of(line))

    def _chosen(self, snapshot: Snapshot) -> Any:
        shown = self.shown(snapshot)
        return shown.lines[shown.chosen] if shown.lines else None


def _kind(pane: int) -> Literal["lane", "run"]:
    return "lane" if PANES[pane] is LANES else "run"
