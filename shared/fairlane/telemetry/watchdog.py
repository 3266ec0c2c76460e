"""Ends a process whose loop is stuck, so that its supervisor starts another."""

import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import NoReturn

from fairlane.core.events import Event
from fairlane.telemetry.log_stream import drain_streams
from fairlane.telemetry.logs import get_logger

log = get_logger("watchdog")

LOOK_S = 1.0
STUCK_LOOKS = 300
"""Looks in a row at a loop that has not turned: five minutes. Probes report it after 30 or 75 s; this is for
supervisors that send none. It leaves time to a user's function that blocks the loop, and then ends."""

STUCK = 2
"""The exit code of a process whose loop is stuck."""

REPORT_S = 5.0
FRAMES = 20


class Watchdog:
    """Looks at a loop once a second, in a thread of its own.

    It counts its own looks instead of time. A process that is suspended or stopped with SIGSTOP makes none
    meanwhile, and gets the full time once it continues.
    """

    def __init__(
        self,
        silent_s: Callable[[], float | None],
        thread: Callable[[], int | None] = lambda: threading.main_thread().ident,
        end: Callable[[], object] | None = None,
    ) -> None:
        """``silent_s``: seconds since the loop last turned, ``None`` before. ``thread``: the loop's identity.

        ``end`` ends the process; by default at once, as a crash would.
        """
        self._silent_s, self._thread_of = silent_s, thread
        self._end = end or _exit
        self._last_s, self._looks = 0.0, 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fairlane-watchdog", daemon=True)

    def start(self) -> None:
        """Look from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stopping.set()

    def look(self) -> bool:
        """Look once; ends the process if the loop is stuck, and says whether it is."""
        silent_s = self._silent_s()
        if silent_s is None or silent_s <= self._last_s:
            self._looks = 0
        else:
            self._looks += 1
        self._last_s = silent_s or 0.0
        if self._looks < STUCK_LOOKS:
            return False
        report = threading.Thread(target=self._report, daemon=True)
        report.start()
        report.join(REPORT_S)  # the loop may be stuck in writing the log, and hold its lock
        self._end()
        return True

    def _report(self) -> None:
        log.critical(Event.PROCESS_STUCK, silent_s=round(self._last_s), frames=_frames_of(self._thread_of()))
        drain_streams()

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_S):
            if self.look():
                return


def _frames_of(thread: int | None) -> list[str]:
    """The stack of a thread, the innermost frame last."""
    frame = sys._current_frames().get(thread or 0)
    if frame is None:
        return []
    return [f"{each.filename}:{each.lineno} {each.name}" for each in traceback.extract_stack(frame)[-FRAMES:]]


def _exit() -> NoReturn:
    """End at once: a stuck loop cannot stop in an orderly way."""
    os._exit(STUCK)
