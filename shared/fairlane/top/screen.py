"""Draws ``fairlane top`` until its user quits, and executes their commands."""

import os
import shutil
import sys
from time import monotonic

from redis.exceptions import RedisError
from rich.console import Console, ConsoleDimensions
from rich.control import Control
from rich.screen import Screen

from fairlane.cli.runs.why import waiting_fields
from fairlane.client.deployment import Deployment
from fairlane.core.errors import FairlaneError, NoTerminal
from fairlane.model.run import RunRef
from fairlane.store.write.audit import operator
from fairlane.top.controls import Action, Controls
from fairlane.top.reading import Reader, Snapshot
from fairlane.top.terminal import Terminal

AGAIN_S = 1.0
"""Seconds before the next read while Redis does not answer."""


def window(terminal: int) -> os.terminal_size:
    """A terminal's columns and lines; the usual ones for a terminal that reports none, as in containers."""
    stated = os.get_terminal_size(terminal)
    return stated if all(stated) else shutil.get_terminal_size()


class Top:
    """One terminal, one deployment."""

    def __init__(self, deployment: Deployment, interval_s: float, console: Console) -> None:
        self._deployment, self._interval_s = deployment, interval_s
        self._reader, self._controls, self._console = Reader(deployment), Controls(), console
        self._silent_since_s: float | None = None

    def run(self) -> None:
        """Run until the user quits. Raises `NoTerminal`, and `Interrupted` for a signal."""
        if self._console.is_dumb_terminal:
            raise NoTerminal
        snapshot, due_s = self._reader.read(), monotonic() + self._interval_s
        with Terminal.opened(self._enter, self._leave) as terminal:
            while not self._controls.left:
                self._draw(snapshot)
                keys = terminal.keys(due_s - monotonic())
                acted = [self._press(key, snapshot) for key in keys or ()]
                if any(acted) or (not self._controls.still and monotonic() >= due_s):
                    snapshot = self._read() or snapshot
                if monotonic() >= due_s:
                    due_s = monotonic() + (self._interval_s if self._silent_since_s is None else AGAIN_S)

    def _read(self) -> Snapshot | None:
        try:
            snapshot = self._reader.read()
        except RedisError:
            self._silent_since_s = self._silent_since_s or monotonic()
            silence_s = monotonic() - self._silent_since_s
            self._controls.message = f"Redis has not answered for {silence_s:.0f} s; trying again"
            return None
        if self._silent_since_s is not None:
            self._silent_since_s, self._controls.message = None, ""
        return snapshot

    def _press(self, key: str, snapshot: Snapshot) -> bool:
        """Handle a key; whether it changed the deployment."""
        act = self._controls.press(key, snapshot)
        if act is None:
            return False
        try:
            if act.verb == "explain":
                self._explain(act)
                return False
            self._change(act)
        except (FairlaneError, RedisError) as error:
            self._controls.message = f"{act}: {error}"
            return False
        self._controls.message = f"{act}: done" if act.kind == "lane" else f"{act}: asked for"
        return True

    def _explain(self, act: Action) -> None:
        d = self._deployment
        team, run = d.settings.team, act.target
        if act.kind == "run":
            ref = RunRef.parse(act.target)
            team, run = ref.team, ref.run
        found = d.explainer(team).why(run)
        self._controls.details = [(name, str(value)) for name, value in waiting_fields(found)]

    def _change(self, act: Action) -> None:
        d = self._deployment
        if act.kind == "lane":
            verb = d.lanes.pause if act.verb == "pause" else d.lanes.resume
            verb(act.target)
            return
        ask = d.outbox.pause if act.verb == "pause" else d.outbox.resume
        ask(RunRef.parse(act.target), operator())

    def _draw(self, snapshot: Snapshot) -> None:
        frame = self._controls.shown(snapshot)
        # Exported variables COLUMNS and LINES would hide that the window is resized.
        self._console.size = ConsoleDimensions(*window(sys.stdout.fileno()))
        with self._console:  # one write, so that nothing flickers
            self._console.control(Control.home())
            self._console.print(Screen(frame, application_mode=True), end="")

    def _enter(self) -> None:
        self._console.set_alt_screen(True)
        self._console.show_cursor(False)

    def _leave(self) -> None:
        self._console.show_cursor(True)
        self._console.set_alt_screen(False)
